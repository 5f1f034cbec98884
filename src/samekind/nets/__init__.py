"""Networks: g (features), h (the linear classifier on top), Phi (similarity), and their slow averages."""
