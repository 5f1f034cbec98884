"""Read damaged images, and odd arrays, tables, label files and texts, with limits of memory and time.

    python benchmarks/attack_inputs.py [--images 500] [--seed 0]

A damaged image is a small image of one of the formats with a few changed, removed or repeated bytes. The odd files are made to
break one assumption each: a header that declares more than follows, a small archive that unpacks to gigabytes, a pipe, UTF-16
without a byte order mark. Lists of texts are fitted on TF-IDF. Each input is read in a forked child. A case fails if it ends
with another exception than samekind's own, a warning, a message of more than 1,000 characters, after 20 seconds of computing or
2 minutes, or with more than 1 GB of memory. The exit code is 1 if any case fails.
"""

from __future__ import annotations

import argparse
import io
import os
import random
import resource
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from odd_texts import text_cases
from PIL import Image

from samekind.data.readers.image_decoder import decode_image, read_image_header
from samekind.data.readers.reader import readers_by_suffix
from samekind.data.user_data import open_data
from samekind.errors import SamekindError

MEMORY, CPU_SECONDS, SECONDS, MAX_MESSAGE = 1 << 30, 20, 120, 1000
FORMATS: list[tuple[str, str, dict[str, object]]] = [
    ("png", "RGBA", {}),
    ("png", "P", {}),
    ("png", "I;16", {}),
    ("jpg", "RGB", {}),
    ("jpg", "CMYK", {"progressive": True}),
    ("gif", "P", {}),
    ("bmp", "RGB", {}),
    ("webp", "RGB", {}),
    ("webp", "RGBA", {"lossless": True}),
    ("tiff", "RGB", {}),
    ("tiff", "L", {"compression": "tiff_lzw"}),
    ("tiff", "F", {"compression": "tiff_deflate"}),
    ("ppm", "RGB", {}),
    ("ico", "RGBA", {}),
    ("jp2", "RGB", {}),
    ("avif", "RGB", {}),
]
GOOD = "{'descr':'<f8','fortran_order':False,'shape':(4,3)}"
HEADERS = [
    GOOD.replace("(4,3)", "(-1,3)"),
    GOOD.replace("(4,3)", "(4611686018427387904,4)"),
    GOOD.replace("(4,3)", f"({'9' * 4500},)"),
    GOOD.replace("(4,3)", "(True,3)"),
    GOOD.replace("(4,3)", "()"),
    GOOD.replace("(4,3)", "[4,3]"),
    GOOD.replace("(4,3)", "(0,3)"),
    GOOD.replace("(4,3)", str((1,) * 70)),
    GOOD.replace("(4,3)", "(4L,3L)"),
    GOOD.replace("'<f8'", "()"),
    GOOD.replace("'<f8'", "[]"),
    GOOD.replace("'<f8'", "None"),
    GOOD.replace("'<f8'", "'O'"),
    GOOD.replace("'<f8'", "'|V0'"),
    GOOD.replace("'<f8'", "'<U100000'"),
    GOOD.replace("'<f8'", "'<M8[s]'"),
    GOOD.replace("'<f8'", "[('a','<f8',(1099511627776,1099511627776))]"),
    GOOD.replace("False", "1"),
    GOOD.replace("'<f8'", "'>c16'").replace("(4,3)", "(2,3)"),
    GOOD + "\0\0",
    "[" * 5000,
    "{'a':" * 300,
    "1+" * 3000 + "1",
    "{[]:1}",
    "{}",
    "-" * 9000 + "1",
]


# ---------------------------------------------------------------- odd files


def npy(header: str, data: bytes = bytes(96)) -> bytes:
    """Return the bytes of an array file with this header."""
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header.encode("latin-1") + data


def archive(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    """Return the bytes of a zip archive."""
    blob = io.BytesIO()
    with zipfile.ZipFile(blob, "w", compression) as opened:
        for name, content in members.items():
            opened.writestr(name, content)
    return blob.getvalue()


def save_bomb(path: Path, key: str, shape: tuple[int, ...]) -> None:
    """Write an archive of a few megabytes whose array of zeros has this shape."""
    header = npy(f"{{'descr':'|u1','fortran_order':False,'shape':{shape}}}", b"")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as opened, opened.open(f"{key}.npy", "w", force_zip64=True) as file:
        file.write(header)
        for _ in range(int(np.prod(shape)) >> 24):
            file.write(bytes(1 << 24))


def array_files() -> dict[str, bytes]:
    """Return odd array files by name."""
    good = npy(GOOD)
    files = {f"header{i}.npy": npy(header) for i, header in enumerate(HEADERS)}
    files |= {f"header{i}.npz": archive({"X.npy": npy(header)}) for i, header in enumerate(HEADERS)}
    files |= {"empty.npy": b"", "magic.npy": b"\x93NUMPY", "version.npy": b"\x93NUMPY\x09\0" + bytes(40)}
    files |= {"length.npy": b"\x93NUMPY\2\0" + struct.pack("<I", 2**32 - 1) + bytes(99), "pickle.npy": b"\x80\x04K\x01."}
    files |= {
        "no_array.npz": archive({"X": b"text"}),
        "no_y.npz": archive({"X.npy": good, "y": b"text"}),
        "none.npz": archive({}),
    }
    files |= {
        "many.npz": archive({f"f{i}": b"" for i in range(3000)}),
        "zip.npz": b"PK\3\4junk",
        "cut.npz": archive({"X.npy": good})[:-30],
    }
    files["method.npz"] = archive({"X.npy": good}).replace(b"PK\1\2\x14\3\x14\0\0\0\0\0", b"PK\1\2\x14\3\x14\0\0\0\x63\0")
    return files | {"encrypted.npz": archive({"X.npy": good}).replace(b"PK\1\2\x14\3\x14\0\0\0", b"PK\1\2\x14\3\x14\0\1\0")}


def table_files() -> dict[str, bytes]:
    """Return odd tables by name."""
    plain, wide = "a,b,label\n1,2,x\n3,4,y\n", ",".join(f"c{i}" for i in range(100_000))
    files = {
        f"{encoding}.csv": plain.encode(encoding) for encoding in ("utf-16-le", "utf-16-be", "utf-16", "utf-32", "utf-32-le")
    }
    texts = {
        "wide": wide + "\n" + ("1," * 99_999 + "1\n") * 2,
        "twice": "a,a\n1,2\n",
        "wide_twice": f"{wide},c9\n",
        "nul": "a,b\n1,\0\n",
        "field": f'a,b\n1,"{"x" * 200_000}"\n',
        "quote": 'a,b\n"1,2\n3,4\n',
        "digits": f"a,b\n{'9' * 5000},1\n1,2\n",
        "header": "a,b\n",
        "commas": "," * 500_000,
        "lines": "\n" * 500_000,
        "bars": "a" + "|" * 60_000 + "\n" + (";" * 60_000 + "\n") * 3,
        "labels": "label," * 50_000 + "z\n",
        "label": f"a,label\n1,{'9' * 5000}\n2,1\n",
    }
    return files | {f"{name}.csv": text.encode() for name, text in texts.items()}


def label_files() -> dict[str, bytes]:
    """Return odd label files for an array of 20 samples by name."""
    texts = {
        "digits": f"row,label\n{'1' * 5000},a\n2,b\n",
        "zeros": f"row,label\n{'0' * 5000}1,a\n2,b\n",
        "superscript": "row,label\n\u00b2,a\n2,b\n",
        "classes": "row,label\n" + "".join(f"{i},c{i}\n" for i in range(40_000)),
        "nul": "row,label\n1,a\0\n",
        "one": "row\n1\n",
        "no": "",
        "wide": f"row,label{',x' * 100_000}\n1,a\n",
        "long": f"row,label\n1,{'a' * 120_000}\n2,b\n",
        "path": f"path,label\n/{'a/' * 3000}0.png,x\n",
        "up": f"path,label\n{'../' * 5000}0.png,x\n",
        "twice": "row,label\n1,a\n1,b\n",
    }
    files = {f"l_{name}.csv": text.encode() for name, text in texts.items()}
    return files | {"l_utf16.csv": "row,label\n1,a\n".encode("utf-16-le"), "l_bytes.csv": random.Random(0).randbytes(3000)}


def parquet_files() -> dict[str, bytes]:
    """Return odd Parquet tables by name; none without pyarrow."""
    try:
        import pyarrow as arrow  # type: ignore[import-untyped]
        from pyarrow import parquet
    except ImportError:
        return {}
    pair = arrow.array([1.0, 2.0])
    tables = {
        "twice": arrow.Table.from_arrays([pair, pair], names=["a", "a"]),
        "none": arrow.table({}),
        "lists": arrow.table({"a": [[1], [2]]}),
        "times": arrow.table({"a": arrow.array([1, 2]).cast("timestamp[ns]")}),
        "bytes": arrow.table({"a": pair, "label": [b"\xff", b"x"]}),
        "struct": arrow.table({"a": pair, "label": [{"x": 1}, {"x": 2}]}),
        "id": arrow.table({"a": pair, "id": [[1], [2]]}),
        "time_label": arrow.table({"a": pair, "label": arrow.array([2**62, 2]).cast("timestamp[ns]")}),
        "empty": arrow.table({"a": pair[:0]}),
    }
    files, rng = {}, random.Random(0)
    for name, table in tables.items():
        blob = io.BytesIO()
        parquet.write_table(table, blob)
        files[f"{name}.parquet"] = blob.getvalue()
    return files | {f"damaged{k}.parquet": mutate(files["times.parquet"], rng) for k in range(40)}


# ---------------------------------------------------------------- images


def mutate(blob: bytes, rng: random.Random) -> bytes:
    """Return the bytes with some changed, cut off, removed or repeated."""
    data = bytearray(blob)
    for _ in range(rng.randint(1, 8)):
        at = rng.randrange(len(data)) if rng.random() < 0.5 else rng.randrange(min(len(data), 64))
        kind = rng.random()
        if kind < 0.7 or len(data) < 20:
            data[at] = rng.choice([0, 255, 127, 128, rng.randrange(256)])
        elif kind < 0.8:
            del data[max(10, at) :]
        elif kind < 0.9:
            del data[at : at + rng.randint(1, 8)]
        else:
            data[at:at] = data[at : at + rng.randint(1, 64)]
    return bytes(data)


def samples() -> list[tuple[str, bytes]]:
    """Return a small image of each format as (suffix, bytes), and pixmaps written as text."""
    x = np.random.default_rng(0).integers(0, 256, (48, 64, 4), dtype=np.uint8)
    found = []
    for suffix, mode, options in FORMATS:
        image = (
            Image.fromarray(x[..., 0]).convert(mode) if mode in ("I;16", "F", "L", "P") else Image.fromarray(x).convert(mode)
        )
        blob = io.BytesIO()
        image.save(blob, format={"jpg": "jpeg", "jp2": "jpeg2000"}.get(suffix, suffix), **options)
        found.append((suffix, blob.getvalue()))
    text = " ".join(map(str, x[..., :3].ravel()))
    return [*found, ("ppm", f"P3 64 48 255\n{text}".encode()), ("pgm", b"P5 64 48 77\n" + x[..., 0].tobytes())]


def large_images() -> dict[str, bytes]:
    """Return small files that declare many pixels, or cost much to decode."""
    ihdr = b"IHDR" + struct.pack(">IIBBBBB", 20_000, 14_000, 8, 6, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + ihdr + struct.pack(">I", zlib.crc32(ihdr))
    icon = struct.pack("<HHHBBBBHHII", 0, 1, 1, 0, 0, 0, 0, 1, 32, len(png), 22) + png
    webp = b"RIFF\x20\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0" + b"\xfe\x3f\0" * 2 + bytes(8)
    text = b"P3 1200 1200 255\n" + b"200 " * (3 * 1200 * 1200)
    return {
        "large.ico": icon,
        "large.webp": webp,
        "text.ppm": text,
        "comments.ppm": b"P3 9 9 255\n" + b"#\n" * 2_000_000 + b"1 " * 243,
    }


# ---------------------------------------------------------------- running


def run(read: Callable[[], object]) -> tuple[str, float]:
    """Call a function in a child with limits; return ("", seconds), or its fault."""
    started = time.monotonic()
    with tempfile.TemporaryFile() as output:
        child = os.fork()
        if child == 0:
            os.write(output.fileno(), _outcome(read).encode("utf-8", "backslashreplace"))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        output.seek(0)
        outcome = output.read().decode() or f"killed at the limit of time or memory (status {status})"
    return outcome.removeprefix("ok"), time.monotonic() - started


def _outcome(read: Callable[[], object]) -> str:
    memory = MEMORY + int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    signal.alarm(SECONDS)
    warnings.simplefilter("error")
    try:
        read()
    except SamekindError as error:
        return "ok" if len(str(error)) <= MAX_MESSAGE else f"a message of {len(str(error))} characters: {str(error)[:100]}"
    except BaseException as error:  # every other exception is a fault
        return f"traceback: {type(error).__name__}: {str(error)[:120]} {traceback.format_tb(error.__traceback__)[-1][-160:]}"
    return "ok"


def read_image(path: Path) -> None:
    """Read the header and the pixels of an image, which give a reason and never an exception."""
    header, pixels = read_image_header(path), decode_image(path, (32, 32, 3))
    assert not isinstance(header, str) or len(header) <= MAX_MESSAGE
    assert isinstance(pixels, np.ndarray) or 0 < len(pixels) <= MAX_MESSAGE


def cases(folder: Path, n_images: int, seed: int) -> dict[str, Callable[[], object]]:
    """Write the files of all cases; return a function that reads each one."""
    rng, found = random.Random(seed), dict[str, Callable[[], object]]()
    originals = samples()
    images = {
        f"image{k}.{originals[k % len(originals)][0]}": mutate(originals[k % len(originals)][1], rng) for k in range(n_images)
    }
    for name, blob in {**images, **large_images()}.items():
        (folder / name).write_bytes(blob)
        found[name] = partial(read_image, folder / name)
    np.save(folder / "x.npy", np.zeros((20, 3)))
    for name, blob in {**array_files(), **table_files(), **parquet_files()}.items():
        (folder / name).write_bytes(blob)
    for key in ("X", "y"):
        save_bomb(folder / f"bomb_{key}.npz", key, (1 << 12, 1 << 20))
    with (folder / "sparse.csv").open("wb") as file:
        file.write(b"row,label\n" + b"1,a\n" * 50_000)
        file.truncate(1 << 40)  # zeros that occupy no space on the disk
    os.mkfifo(folder / "pipe.npy")
    os.mkfifo(folder / "pipe.csv")
    (folder / "loop.npy").symlink_to("loop.npy")
    odd = [
        *array_files(),
        *table_files(),
        *parquet_files(),
        "bomb_X.npz",
        "bomb_y.npz",
        "pipe.npy",
        "pipe.csv",
        "sparse.csv",
        "loop.npy",
        "a" * 300 + ".npy",
        "/".join(["a" * 200] * 30) + ".csv",
        "a\0b.npy",
        "x.npy/y.npy",
    ]
    for name in odd:
        found[name[:60]] = partial(open_data, folder / name, cache=folder / "cache")
    for name, blob in label_files().items():
        (folder / name).write_bytes(blob)
    for name in [*label_files(), "pipe.csv", "sparse.csv", "a" * 300 + ".csv", "nul\0.csv", "x.npy/l.csv"]:
        found[f"labels {name[:60]}"] = partial(open_data, folder / "x.npy", labels=folder / name, cache=folder / "cache")
    return found | text_cases(folder)


def main() -> int:
    """Run the cases and print one line per fault and a summary; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    readers_by_suffix()  # the children share what is imported here
    faults, slowest, started = Counter[str](), (0.0, ""), time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        found = cases(Path(place), args.images, args.seed)
        for name, read in found.items():
            fault, seconds = run(read)
            slowest = max(slowest, (seconds, name))
            if fault:
                faults[fault.partition(":")[0].partition(" (")[0]] += 1
                print(f"{name}: {' '.join(fault.split())}", flush=True)
    others = len(found) - args.images
    seconds = time.monotonic() - started
    print(
        f"{args.images} damaged images and {others} odd inputs in {seconds:.0f} s: {sum(faults.values())} faults {dict(faults)}"
    )
    print(f"slowest: {slowest[1]}, {slowest[0]:.1f} s")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
