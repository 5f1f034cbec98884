"""The data sets that can be fetched by name: where they come from, what their files are, and what is inside.

Size, md5 and sha256 of a file are those of the official one. They are public, and were compared between sources that do not
depend on each other; the sizes of CIFAR-100's `train` and `test` were found in one only. Those of the unpacked CIFAR-10 files
were computed as well, and so were those of CIFAR-100's `meta`, whose bytes follow from the names of its classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from samekind.errors import SettingError, did_you_mean


class Digest(NamedTuple):
    """What tells one file from another."""

    size: int
    md5: str
    sha256: str


@dataclass(frozen=True)
class DatasetFile:
    """A file by its official bytes. `content` is the sha256 of what is inside, however it is packed; "" if it is not known."""

    name: str
    size: int
    md5: str
    sha256: str
    content: str = ""

    @property
    def digest(self) -> Digest:
        return Digest(self.size, self.md5, self.sha256)


@dataclass(frozen=True)
class SplitFiles:
    """The files of one part of a set, the rows in them together, and the rows of each class; () if these are not known."""

    files: tuple[DatasetFile, ...]
    n_images: int
    class_counts: tuple[int, ...] = ()


@dataclass(frozen=True)
class DatasetSource:
    """A data set. Its files lie in the first of `folders` below the root; the others are places where it may already be."""

    name: str
    kind: Literal["cifar", "idx", "mat"]
    folders: tuple[str, ...]
    hosts: tuple[str, ...]  # a file comes from host + name; the next host is asked when one fails
    shape: tuple[int, int, int]  # H, W, C of an image
    classes: tuple[str, ...]
    train: SplitFiles
    test: SplitFiles
    terms: str
    cite: str
    extra: SplitFiles | None = None
    names: DatasetFile | None = None  # a file that holds the names of the classes and nothing else of use
    archive: DatasetFile | None = None  # holds the files; without it each is fetched on its own

    @property
    def needed(self) -> tuple[DatasetFile, ...]:
        """The files without which the set is not whole."""
        return (*self.train.files, *self.test.files, *((self.names,) if self.names else ()))

    @property
    def optional(self) -> tuple[DatasetFile, ...]:
        """The files that only some want."""
        return self.extra.files if self.extra else ()

    @property
    def download_size(self) -> int:
        """Bytes to fetch when nothing is in place, without the optional files."""
        return sum(file.size for file in ((self.archive,) if self.archive else self.needed))


def find_dataset(name: str) -> DatasetSource:
    """The data set of this name."""
    if name not in DATASETS:
        raise SettingError(f"there is no data set {name!r}; {did_you_mean(name.lower(), DATASETS)}")
    return DATASETS[name]


DIGITS = tuple("0 1 2 3 4 5 6 7 8 9".split())

# The second checksum of a CIFAR file is the sha256 of its pixels in stored order, then its labels, one byte each.
CIFAR10 = DatasetSource(
    name="cifar10",
    kind="cifar",
    folders=("cifar-10-batches-py",),
    hosts=("https://www.cs.toronto.edu/~kriz/",),
    shape=(32, 32, 3),
    classes=tuple("airplane automobile bird cat deer dog frog horse ship truck".split()),
    train=SplitFiles(
        (
            DatasetFile(
                "data_batch_1",
                31035704,
                "c99cafc152244af753f735de768cd75f",
                "54636561a3ce25bd3e19253c6b0d8538147b0ae398331ac4a2d86c6d987368cd",
                "ba52cb2d72c412975d7556bb26bd094956f1c002d1937053f6f1252f2ac17114",
            ),
            DatasetFile(
                "data_batch_2",
                31035320,
                "d4bba439e000b95fd0a9bffe97cbabec",
                "766b2cef9fbc745cf056b3152224f7cf77163b330ea9a15f9392beb8b89bc5a8",
                "350ff9000489d02f2568c0dcf4912ffdbae9e50932147905fb1b8159ad54f0ac",
            ),
            DatasetFile(
                "data_batch_3",
                31035999,
                "54ebc095f3ab1f0389bbae665268c751",
                "0f00d98ebfb30b3ec0ad19f9756dc2630b89003e10525f5e148445e82aa6a1f9",
                "a2b8653fc457df407af6c38b7e0d1a12530f3b5f81fce9f81516efd065daf722",
            ),
            DatasetFile(
                "data_batch_4",
                31035696,
                "634d18415352ddfa80567beed471001a",
                "3f7bb240661948b8f4d53e36ec720d8306f5668bd0071dcb4e6c947f78e9682b",
                "133e6292c377755074c305db8a684d48d5397372cb0aba34f52b4335eab35d97",
            ),
            DatasetFile(
                "data_batch_5",
                31035623,
                "482c414d41f54cd18b22e5b47cb7c3cb",
                "d91802434d8376bbaeeadf58a737e3a1b12ac839077e931237e0dcd43adcb154",
                "eb08cdc11fd1267ef871cf4790f193684b3f556d13317be68f4eb374a078ea87",
            ),
        ),
        n_images=50_000,
        class_counts=(5000,) * 10,
    ),
    test=SplitFiles(
        (
            DatasetFile(
                "test_batch",
                31035526,
                "40351d587109b95175f43aff81a1287e",
                "f53d8d457504f7cff4ea9e021afcf0e0ad8e24a91f3fc42091b8adef61157831",
                "9a4c74f5c8b6f2c4e13d3a1dfb43a5a8cda8a9da515e99fd620d2013a1a6287a",
            ),
        ),
        n_images=10_000,
        class_counts=(1000,) * 10,
    ),
    names=DatasetFile(
        "batches.meta",
        158,
        "5ff9c542aee3614f3951f8cda6e48888",
        "f962466ef690d46b226450fb9aadc74ba4bc64a76aa526b5827fe4bc5c7125cb",
        "bb3914949cecedee6d1257f7f5fdb8f43fa3b2c8095fd1763161caf1b873fe59",
    ),
    archive=DatasetFile(
        "cifar-10-python.tar.gz",
        170498071,
        "c58f30108f718f92721af3b95e74349a",
        "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    ),
    terms="no licence stated; the authors ask for the citation",
    cite="Krizhevsky: Learning multiple layers of features from tiny images, technical report, University of Toronto, 2009",
)

# Of CIFAR-100's images no second checksum could be confirmed, so only the official bytes pass.
CIFAR100 = DatasetSource(
    name="cifar100",
    kind="cifar",
    folders=("cifar-100-python",),
    hosts=CIFAR10.hosts,
    shape=(32, 32, 3),
    classes=tuple(
        """apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
        caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
        forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
        mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
        possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
        sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale willow_tree
        wolf woman worm""".split()
    ),
    train=SplitFiles(
        (
            DatasetFile(
                "train",
                155249918,
                "16019d7e3df5f24257cddd939b257f8d",
                "735e79b04f092ca3d2e6d07f368c0a7d70d48c48d28865950cc24454cf45129b",
            ),
        ),
        n_images=50_000,
        class_counts=(500,) * 100,
    ),
    test=SplitFiles(
        (
            DatasetFile(
                "test",
                31049707,
                "f0ef6b0ae62326f3e7ffdfab6717acfc",
                "4b67687d9933c4db8f0831104447f15b93774f4f464bd0516f0f0f2ac83b7864",
            ),
        ),
        n_images=10_000,
        class_counts=(100,) * 100,
    ),
    names=DatasetFile(
        "meta",
        1473,
        "7973b15100ade9c7d40fb424638fde48",
        "a5d4786345c961390f865e93b434dbd5c6904ce880667e0cb888c97d449f28b9",
        "fbe8ad23bbaf24969898a386833b49c3aaf6ad1119d43f7b41cdea1b3416d578",
    ),
    archive=DatasetFile(
        "cifar-100-python.tar.gz",
        169001437,
        "eb9058c3a382ffc7106e4002c42a8d85",
        "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
    ),
    terms=CIFAR10.terms,
    cite=CIFAR10.cite,
)

# No second checksum could be confirmed here either, nor the rows of each class among the extra images.
SVHN = DatasetSource(
    name="svhn",
    kind="mat",
    folders=("svhn", "."),
    hosts=("http://ufldl.stanford.edu/housenumbers/",),
    shape=(32, 32, 3),
    classes=DIGITS,
    train=SplitFiles(
        (
            DatasetFile(
                "train_32x32.mat",
                182040794,
                "e26dedcc434d2e4c54c9b2d4a06d8373",
                "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
            ),
        ),
        n_images=73_257,
        class_counts=(4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659),
    ),
    test=SplitFiles(
        (
            DatasetFile(
                "test_32x32.mat",
                64275384,
                "eb5a983be6a315427106f1b164d9cef3",
                "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
            ),
        ),
        n_images=26_032,
        class_counts=(1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595),
    ),
    extra=SplitFiles(
        (
            DatasetFile(
                "extra_32x32.mat",
                1329278602,
                "a93ce644f1a588dc4d68dda5feec44a7",
                "a133a4beb38a00fcdda90c9489e0c04f900b660ce8a316a5e854838379a71eb3",
            ),
        ),
        n_images=531_131,
    ),
    terms="for non-commercial use only",
    cite="Netzer, Wang, Coates, Bissacco, Wu, Ng: Reading digits in natural images with unsupervised feature learning, 2011",
)

# The second checksum is the sha256 of the unzipped file: many copies were zipped again, and hold the same digits.
MNIST = DatasetSource(
    name="mnist",
    kind="idx",
    folders=("mnist", "MNIST/raw"),
    hosts=(
        "https://storage.googleapis.com/cvdf-datasets/mnist/",  # hosted in agreement with the authors
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "http://yann.lecun.com/exdb/mnist/",  # the authors' own; it seldom answers
    ),
    shape=(28, 28, 1),
    classes=DIGITS,
    train=SplitFiles(
        (
            DatasetFile(
                "train-images-idx3-ubyte.gz",
                9912422,
                "f68b3c2dcbeaaa9fbdd348bbdeb94873",
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            ),
            DatasetFile(
                "train-labels-idx1-ubyte.gz",
                28881,
                "d53e105ee54ea40749a09fcbcd1e9432",
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            ),
        ),
        n_images=60_000,
        class_counts=(5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
    ),
    test=SplitFiles(
        (
            DatasetFile(
                "t10k-images-idx3-ubyte.gz",
                1648877,
                "9fb629c4189551a2d022fa330f9573f3",
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            ),
            DatasetFile(
                "t10k-labels-idx1-ubyte.gz",
                4542,
                "ec29112dd5afa0611ce80d1b7f02629c",
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
                "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
            ),
        ),
        n_images=10_000,
        class_counts=(980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
    ),
    terms="no licence on the authors' page; often given as CC BY-SA 3.0",
    cite="LeCun, Bottou, Bengio, Haffner: Gradient-based learning applied to document recognition, Proc. IEEE 86, 1998",
)

# Of the unzipped files no checksum could be confirmed, so only the official bytes pass.
FASHION_MNIST = DatasetSource(
    name="fashion_mnist",
    kind="idx",
    folders=("fashion_mnist", "FashionMNIST/raw"),
    hosts=(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
    ),
    shape=(28, 28, 1),
    classes=("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    train=SplitFiles(
        (
            DatasetFile(
                "train-images-idx3-ubyte.gz",
                26421880,
                "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
                "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            ),
            DatasetFile(
                "train-labels-idx1-ubyte.gz",
                29515,
                "25c81989df183df01b3e8a0aad5dffbe",
                "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            ),
        ),
        n_images=60_000,
        class_counts=(6000,) * 10,
    ),
    test=SplitFiles(
        (
            DatasetFile(
                "t10k-images-idx3-ubyte.gz",
                4422102,
                "bef4ecab320f06d8554ea6380940ec79",
                "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            ),
            DatasetFile(
                "t10k-labels-idx1-ubyte.gz",
                5148,
                "bb300cfdad3c16e7a12a480ee83cd310",
                "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
            ),
        ),
        n_images=10_000,
        class_counts=(1000,) * 10,
    ),
    terms="MIT licence",
    cite="Xiao, Rasul, Vollgraf: Fashion-MNIST: a novel image dataset for benchmarking machine learning algorithms, 2017",
)

DATASETS = {source.name: source for source in (CIFAR10, CIFAR100, SVHN, MNIST, FASHION_MNIST)}
