"""Networks: classifiers, the similarity network, EMA teachers and frozen encoders."""
