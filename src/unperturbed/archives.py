"""Files out of an archive that was downloaded: plain ones only, bounded in size, all of them or none."""

import gzip
import tarfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from .npz import most_expanded, read_bounded
from .printing import printable


def unpack(archive: Path, names: Sequence[str]) -> None:
    """Copy the named files out of an archive to where it lies, unless they are there; all of them or none."""
    if all(archive.with_name(name).exists() for name in names):
        return
    # A copy that is cut short must not bear the name of a whole one, nor one that another process is making.
    with TemporaryDirectory(prefix=f"{archive.name}.", dir=archive.parent) as place:
        unfinished = {name: Path(place) / name for name in names}
        try:
            with tarfile.open(archive) as members:
                for name in copied_from(members, archive, unfinished):
                    unfinished[name].replace(archive.with_name(name))
        except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(f"{printable(archive)} is cut off or not an archive: fetch it again") from error


def copied_from(members: tarfile.TarFile, archive: Path, paths: Mapping[str, Path]) -> set[str]:
    """Names of the files that were copied to their paths: plain ones only, wherever the archive says they belong."""
    left, copied = most_expanded(archive.stat().st_size), set[str]()
    for member in members:
        name = Path(member.name).name
        if name not in paths or not member.isreg() or (contents := members.extractfile(member)) is None:
            continue
        left -= member.size
        if left < 0 or name in copied:
            fault = "expands to too much" if left < 0 else f"holds {name} twice"
            raise ValueError(f"{printable(archive)} {fault}: fetch it again")
        copied.add(name)
        paths[name].write_bytes(read_bounded(contents.read, member.size))
    return copied
