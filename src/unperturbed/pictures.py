"""Pictures out of files: found in folders, turned upright, cut to one shape; damaged ones refused in one sentence."""

import warnings
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from .printing import printable

Shape = tuple[int, int, int]
Color = Literal["gray", "rgb"]
ENDINGS = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
"""of the names of pictures, in small letters"""
MODES = {1: "L", 3: "RGB"}
"""names in Pillow of images with so many channels"""
ORIENTATION, ON_ITS_SIDE = 0x0112, (5, 6, 7, 8)
"""the field of EXIF that says how a camera was held, and its values for a picture that lies on its side"""
GRAY = ("1", "L", "LA")
"""kinds of pictures in Pillow that have no color"""
COARSE = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "HSV", "LAB")
"""kinds of pictures in Pillow with one byte for each number: others would be cut off, not scaled"""


def pictures_in(place: Path) -> list[Path]:
    """The picture that lies there, or all in that folder and in folders within, in the order of their names."""
    if not place.exists():
        raise FileNotFoundError(f"{printable(place)} does not exist: name a picture, or a folder of pictures")
    return sorted(filter(is_picture, files_in(place))) if place.is_dir() else [place]


def is_picture(path: Path) -> bool:
    """Whether a file is a picture by its name."""
    return path.suffix.lower() in ENDINGS


def files_in(folder: Path, above: frozenset[Path] = frozenset()) -> Iterator[Path]:
    """All files in a folder and in folders within, but for hidden ones; a link back to one above is not followed."""
    above |= {folder.resolve(), *folder.resolve().parents}
    for path in folder.iterdir():
        if path.name.startswith(".") or (path.is_symlink() and path.resolve() in above):
            continue
        if path.is_dir():
            yield from files_in(path, above)
        else:
            yield path


@contextmanager
def refused_if_damaged(path: Path) -> Generator[None]:
    """Say in one sentence what is wrong with a picture."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            yield
    except (Image.DecompressionBombWarning, Image.DecompressionBombError):
        raise ValueError(f"{printable(path)} is a picture of absurd size: make it smaller, or leave it out") from None
    except UnidentifiedImageError:
        raise ValueError(f"{printable(path)} is no picture that can be read: leave it out, or save it anew") from None
    except PermissionError:
        raise ValueError(f"{printable(path)} may not be read: allow that, or leave it out") from None
    except (OSError, SyntaxError, ValueError, EOFError) as error:
        reason = printable(getattr(error, "strerror", None) or error)
        raise ValueError(f"{printable(path)} is damaged ({reason}): leave it out, or save it anew") from None


@contextmanager
def begun(path: Path) -> Generator[Image.Image]:
    """The picture in that file, read as far as its size; by its name Pillow would map it and scramble some."""
    with refused_if_damaged(path), path.open("rb") as stream, Image.open(stream) as found:
        yield found


def looked_at(path: Path) -> tuple[tuple[int, int], Color]:
    """Height, width and color of a picture, from the beginning of its file."""
    with begun(path) as found:
        color: Color = "gray" if found.mode in GRAY else "rgb"
        on_its_side = found.getexif().get(ORIENTATION) in ON_ITS_SIDE
        if on_its_side and turns_itself(found):
            found.load()  # Only newer versions of Pillow give the size that it will have before that.
            on_its_side = False
        width, height = found.size
        return (width, height) if on_its_side else (height, width), color


def turns_itself(picture: Image.Image) -> bool:
    """Whether Pillow stands a picture upright while it reads it, as it does TIFFs; older versions still say how."""
    return picture.format == "TIFF"


def opened(path: Path) -> Image.Image:
    """The picture in that file, upright as its camera says; what is transparent in it is white."""
    with begun(path) as found:
        found.load()
        picture = found.copy() if turns_itself(found) else ImageOps.exif_transpose(found)
    if picture.mode not in COARSE:
        raise ValueError(
            f"{printable(path)} has more than eight bits for a number ({picture.mode}): save it with eight, scaled"
        )
    if "A" in picture.getbands() or "transparency" in picture.info:
        seen = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", seen.size, "white"), seen).convert(
            "L" if picture.mode in GRAY else "RGB"
        )
    return picture


def cut_to(picture: Image.Image, shape: Shape) -> Tensor:
    """The middle of a picture as uint8 (C, H, W), as much of it as has that shape, scaled with smoothing."""
    channels, height, width = shape
    plain = picture.convert(MODES[channels])
    if plain.size != (width, height):
        plain = ImageOps.fit(plain, (width, height), Image.Resampling.BILINEAR)
    pixels = torch.from_numpy(np.array(plain, dtype=np.uint8))
    return pixels.view(height, width, channels).permute(2, 0, 1).contiguous()


def read_pictures(paths: Sequence[Path], shape: Shape) -> Tensor:
    """Pictures as uint8 (N, C, H, W) of that shape."""
    images = torch.empty(len(paths), *shape, dtype=torch.uint8)
    for image, path in zip(images, paths, strict=True):
        image.copy_(cut_to(opened(path), shape))
    return images
