"""Folders of pictures become data sets, and finished models are asked about pictures."""

import json
import re
import shlex
import shutil
import struct
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch
from PIL import Image

from tiny import NETWORK
from unperturbed import cli
from unperturbed.cli.predict import MOST_COLUMNS, answered, as_text
from unperturbed.datasets import load
from unperturbed.pictures import cut_to, looked_at, opened, pictures_in, read_pictures
from unperturbed.risks import NO_CLASS


def save(path, pixels, **options):
    """Write a picture."""
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = pixels if isinstance(pixels, Image.Image) else Image.fromarray(np.asarray(pixels, dtype=np.uint8))
    picture.save(path, **options)
    return path


def noise(seed, *shape):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


@pytest.fixture
def album(tmp_path):
    """Two classes of ten pictures each, five without a label, and a file that is none."""
    folder = tmp_path / "album"
    for seed in range(10):
        save(folder / "cat" / f"{seed}.png", noise(seed, 8, 8))
        save(folder / "dog" / "more" / f"{seed}.PNG", noise(100 + seed, 8, 8))
    for seed in range(5):
        save(folder / "unlabeled" / f"{seed}.png", noise(200 + seed, 8, 8))
    (folder / "cat" / "notes.txt").write_text("not a picture")
    (folder / ".hidden").mkdir()
    save(folder / ".hidden" / "x.png", noise(0, 8, 8))
    return folder


def packed(folder, out, *options):
    cli.main(["pack", str(folder), "--out", str(out), *map(str, options)])
    return load(str(out))


def test_what_pack_proposes_is_what_the_readme_shows(album, tmp_path, monkeypatch, capsys):
    """Not the recipe as it is: its radius is for digits, and evaluate attacks other pictures within 8/255."""
    readme = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for seed in range(79):
        save(album / "unlabeled" / "more" / f"{seed}.png", noise(300 + seed, 8, 8))
    packed(album, "my.npz")
    assert capsys.readouterr().out.split("next: ")[1] in readme.replace("\\\n  ", "")


@pytest.mark.parametrize("without_label", [True, False])
def test_what_pack_proposes_for_few_pictures_can_be_done(album, tmp_path, monkeypatch, capsys, without_label):
    """Fewer images than the recipe has in a batch are one batch."""
    monkeypatch.chdir(tmp_path)
    if not without_label:
        shutil.rmtree(album / "unlabeled")
    packed(album, "my.npz")
    command = shlex.split(capsys.readouterr().out.split("next: ")[1])
    assert command[-2:] == ["--batch", "21" if without_label else "16"]
    small = ["--steps", "1", *NETWORK, "--device", "cpu"]
    cli.main([*command[1:], *small])
    assert (tmp_path / "runs" / "own" / "model.safetensors").is_file()


def test_a_folder_of_classes_becomes_a_data_set(album, tmp_path, capsys):
    made = packed(album, tmp_path / "my.npz")
    said = capsys.readouterr()
    assert "2 classes (cat, dog), 16 training, 4 test and 5 unlabeled images of 1 x 8 x 8" in said.out
    assert f"--data.name {tmp_path / 'my.npz'} " in said.out
    assert said.err == "unperturbed: left out: 1 file with names that no pictures have (.txt)\n"
    assert made.classes == ("cat", "dog")
    assert sorted(made.test_labels.tolist()) == [0, 0, 1, 1]
    assert made.train_labels.tolist() == [0] * 8 + [1] * 8
    every = {
        (int(label), image.numpy().tobytes())
        for images, labels in ((made.train_images, made.train_labels), (made.test_images, made.test_labels))
        for image, label in zip(images, labels, strict=True)
    }
    assert every == {(0, noise(seed, 8, 8).tobytes()) for seed in range(10)} | {
        (1, noise(100 + seed, 8, 8).tobytes()) for seed in range(10)
    }
    assert [image.numpy().tobytes() for image in made.unlabeled_images] == [
        noise(200 + seed, 8, 8).tobytes() for seed in range(5)
    ]


@pytest.mark.parametrize("part", ["", "train"])
def test_a_folder_of_a_class_that_holds_no_picture_is_told(part, album, tmp_path, capsys):
    if part:
        whole = tmp_path / "parted"
        shutil.copytree(album, whole / part, ignore=shutil.ignore_patterns("unlabeled", "notes.txt"))
        album = whole
    else:
        (album / "cat" / "notes.txt").unlink()
    empty = album / part / "horse"
    empty.mkdir()
    assert packed(album, tmp_path / "my.npz").classes == ("cat", "dog")
    assert capsys.readouterr().err == f"unperturbed: left out: {empty} holds no picture, so it is no class\n"


def test_a_class_of_which_no_picture_is_for_test_is_told(tmp_path, capsys):
    for seed, place in enumerate(["train/cat", "train/dog", "test/cat"]):
        save(tmp_path / "parted" / place / "1.png", noise(seed, 8, 8))
    packed(tmp_path / "parted", tmp_path / "my.npz")
    assert "unperturbed: no picture for test is of class dog, so evaluate" in capsys.readouterr().err


def test_a_class_whose_test_pictures_are_all_damaged_is_told(tmp_path, capsys):
    for seed, place in enumerate(["train/cat", "train/dog", "test/cat", "test/dog"]):
        save(tmp_path / "parted" / place / "1.png", noise(seed, 8, 8))
    (tmp_path / "parted" / "test" / "dog" / "1.png").write_bytes(b"no picture")
    packed(tmp_path / "parted", tmp_path / "my.npz", "--skip-damaged")
    assert "unperturbed: no picture for test is of class dog, so evaluate" in capsys.readouterr().err


@pytest.mark.parametrize("part", ["", "test"])
def test_the_first_test_images_are_of_all_classes(part, tmp_path):
    for label, name in enumerate("abc"):
        for seed in range(40):
            save(tmp_path / "in" / ("train" if part else "") / name / f"{seed}.png", noise(100 * label + seed, 4, 4))
        for seed in range(20 if part else 0):
            save(tmp_path / "in" / part / name / f"{seed}.png", noise(100 * label + 50 + seed, 4, 4))
    made = packed(tmp_path / "in", tmp_path / "my.npz", "--test", 0.5)
    assert made.test_labels.bincount().tolist() == [20, 20, 20]
    assert set(made.test_labels[:12].tolist()) == {0, 1, 2}
    label_of = {noise(100 * label + seed, 4, 4).tobytes(): label for label in range(3) for seed in range(70)}
    assert [label_of[image.numpy().tobytes()] for image in made.test_images] == made.test_labels.tolist()


def test_of_many_classes_and_of_long_names_pack_names_the_beginning(tmp_path, capsys):
    for name in ("0" * 60, *"123456"):
        for seed in range(2):
            save(tmp_path / "in" / name / f"{seed}.png", noise(seed, 8, 8))
    packed(tmp_path / "in", tmp_path / "my.npz")
    assert f"my.npz: 7 classes ({'0' * 40} …, 1, 2, 3, 4, 5, …), 7 training, " in capsys.readouterr().out


def test_the_folder_of_the_data_set_is_made(album, tmp_path):
    assert packed(album, tmp_path / "new" / "folder" / "my.npz").classes == ("cat", "dog")


@pytest.mark.parametrize("size", [10**8, 10**10])
def test_images_that_no_memory_holds_are_refused_in_a_sentence(album, tmp_path, size, refused):
    assert "not enough memory" in refused("pack", album, "--out", tmp_path / "my.npz", "--size", size)
    assert not (tmp_path / "my.npz").exists()


def test_the_draw_for_test_is_that_of_the_seed(album, tmp_path):
    first, again, other = (
        packed(album, tmp_path / f"{name}.npz", "--seed", seed, "--test", 0.4)
        for name, seed in (("a", 3), ("b", 3), ("c", 4))
    )
    assert len(first.test_images) == 8
    assert torch.equal(first.test_images, again.test_images)
    assert not torch.equal(first.test_images, other.test_images)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_parts_that_are_apart_stay_apart(tmp_path):
    for seed in range(3):
        save(tmp_path / "in" / "train" / "b" / f"{seed}.png", noise(seed, 6, 9))
        save(tmp_path / "in" / "train" / "a" / f"{seed}.png", noise(10 + seed, 6, 9))
    save(tmp_path / "in" / "test" / "b" / "x.png", noise(20, 6, 9))
    made = packed(tmp_path / "in", tmp_path / "out.npz")
    assert made.classes == ("a", "b")
    assert made.train_images.shape == (6, 1, 6, 9)
    assert made.test_labels.tolist() == [1]
    assert len(made.unlabeled_images) == 0


def test_a_class_is_the_same_however_a_system_writes_its_accents(tmp_path, refused):
    one, two = "caf\u00e9", "cafe\u0301"
    for part, name, first in (("train", one, 0), ("train", "tea", 10), ("test", two, 20), ("test", "tea", 30)):
        for seed in range(3):
            save(tmp_path / "apart" / part / name / f"{seed}.png", noise(first + seed, 8, 8))
            save(tmp_path / "mixed" / name / f"{seed}.png", noise(first + seed, 8, 8))
    made = packed(tmp_path / "apart", tmp_path / "own.npz")
    assert made.classes == (one, "tea")
    assert sorted(made.test_labels.tolist()) == [0] * 3 + [1] * 3
    sentence = refused("pack", tmp_path / "mixed", "--out", tmp_path / "other.npz")
    assert "has two classes that read café" in sentence


def test_a_test_image_that_was_trained_on_is_told(tmp_path, capsys):
    for name in ("a", "b"):
        for seed in range(4):
            save(tmp_path / "in" / "train" / name / f"{seed}.png", noise(seed + 50 * (name == "b"), 8, 8))
    save(tmp_path / "in" / "test" / "a" / "same.png", noise(2, 8, 8))
    save(tmp_path / "in" / "test" / "b" / "other.png", noise(99, 8, 8))
    packed(tmp_path / "in", tmp_path / "out.npz")
    assert "1 test image can also be found among the others, to the last bit" in capsys.readouterr().err


def test_pictures_of_many_sizes_are_cut_to_one(tmp_path, refused):
    for name in ("a", "b"):
        save(tmp_path / "in" / name / "wide.png", np.full((8, 20), 255))
        save(tmp_path / "in" / name / "color.jpg", np.zeros((30, 10, 3)))
    assert "the pictures have 2 sizes (8 x 20, 30 x 10): name one" in refused(
        "pack", tmp_path / "in", "--out", tmp_path / "x.npz"
    )
    assert not (tmp_path / "x.npz").exists()
    assert packed(tmp_path / "in", tmp_path / "x.npz", "--size", 8).train_images.shape[1:] == (3, 8, 8)
    gray = packed(tmp_path / "in", tmp_path / "y.npz", "--size", 4, 6, "--color", "gray")
    assert gray.train_images.shape[1:] == (1, 4, 6)


def test_the_middle_of_a_picture_is_kept():
    pixels = np.zeros((4, 8), dtype=np.uint8)
    pixels[:, 2:6] = 200
    assert torch.equal(cut_to(Image.fromarray(pixels), (1, 4, 4)), torch.full((1, 4, 4), 200, dtype=torch.uint8))
    colors = cut_to(Image.fromarray(noise(0, 5, 5, 3)), (3, 5, 5))
    assert torch.equal(colors, torch.from_numpy(noise(0, 5, 5, 3)).permute(2, 0, 1))


def test_a_picture_is_turned_as_its_camera_was_held(tmp_path):
    pixels = np.zeros((4, 8), dtype=np.uint8)
    pixels[:, :4] = 255
    exif = Image.Exif()
    exif[0x0112] = 6
    for ending, how in (("png", {}), ("tif", {}), ("tiff", {"compression": "tiff_lzw"})):
        path = save(tmp_path / f"turned.{ending}", pixels, exif=exif, **how)
        assert looked_at(path) == ((8, 4), "gray")
        upright = np.array(opened(path))
        assert upright.shape == (8, 4)
        assert upright[:4].min() == 255
        assert upright[4:].max() == 0
    word = struct.pack("<4sIHHHI4sI", b"II*\0", 8, 1, 0x0112, 2, 4, b"six\0", 0)
    odd = save(tmp_path / "odd.png", pixels, exif=b"Exif\0\0" + word)
    assert looked_at(odd) == ((4, 8), "gray")
    assert np.array(opened(odd)).shape == (4, 8)


@pytest.mark.parametrize(
    ("mode", "color", "white"), [("RGBA", (10, 20, 30, 0), (255, 255, 255)), ("LA", (10, 0), 255)]
)
def test_what_is_transparent_is_white(mode, color, white, tmp_path):
    path = save(tmp_path / "clear.png", Image.new(mode, (3, 3), color))
    assert opened(path).getpixel((1, 1)) == white
    assert looked_at(path)[1] == ("gray" if mode == "LA" else "rgb")


def test_a_palette_has_its_colors(tmp_path):
    path = save(tmp_path / "few.png", Image.new("RGB", (3, 3), (255, 0, 0)).convert("P"))
    assert read_pictures([path], (3, 3, 3))[0, :, 1, 1].tolist() == [255, 0, 0]


def test_pictures_are_found_in_the_order_of_their_names(album):
    assert [path.name for path in pictures_in(album / "cat")] == [f"{number}.png" for number in range(10)]
    assert len(pictures_in(album)) == 25
    (album / "cat" / "back").symlink_to(album)
    assert len(pictures_in(album)) == 25


def damaged(folder):
    content = save(folder / "cat" / "0.png", noise(0, 8, 8)).read_bytes()
    (folder / "cat" / "0.png").write_bytes(content[: len(content) // 2])


def text(folder):
    (folder / "cat" / "0.png").write_text("no picture at all")


def deep(folder):
    save(folder / "cat" / "0.png", Image.fromarray(noise(0, 8, 8).astype(np.uint16) * 256))


def huge(folder):
    save(folder / "cat" / "0.png", Image.new("1", (20_000, 20_000)))


def loose(folder):
    save(folder / "loose.png", noise(0, 8, 8))


def single(folder):
    save(folder / "bird" / "only.png", noise(0, 8, 8))


def half(folder):
    save(folder / "test" / "cat" / "x.png", noise(0, 8, 8))


def parted(folder):
    (folder / "train").mkdir()
    for name in ("cat", "dog"):
        (folder / name).rename(folder / "train" / name)


def misnamed(folder):
    parted(folder)
    save(folder / "val" / "cat" / "x.png", noise(0, 8, 8))


def beside(folder):
    parted(folder)
    save(folder / "beside.png", noise(0, 8, 8))


def unsorted(folder):
    parted(folder)
    save(folder / "test" / "unsorted.png", noise(0, 8, 8))


def untested(folder):
    parted(folder)
    (folder / "test" / "cat").mkdir(parents=True)


def strange(folder):
    parted(folder)
    save(folder / "test" / "horse" / "x.png", noise(0, 8, 8))


def capitalized(folder):
    for part in ("Train", "Test"):
        for name in ("cat", "dog"):
            shutil.copytree(folder / name, folder / part / name)
    shutil.rmtree(folder / "cat")
    shutil.rmtree(folder / "dog")


def shouted(folder):
    (folder / "unlabeled").rename(folder / "UNLABELED")


def in_british(folder):
    (folder / "unlabeled").rename(folder / "unlabelled")


def underscored(folder):
    (folder / "unlabeled").rename(folder / "_unlabeled")


def at_length(folder):
    parted(folder)
    (folder / "train").rename(folder / "training")


def several_damaged(folder):
    for place in (folder / "cat" / "1.png", folder / "dog" / "more" / "1.PNG"):
        place.write_bytes(b"no picture")
    Image.fromarray(np.full((8, 8), 40_000, np.uint16)).save(folder / "unlabeled" / "2.png")


def half_capitalized(folder):
    parted(folder)
    save(folder / "Test" / "cat" / "x.png", noise(0, 8, 8))


def within_train(folder):
    parted(folder)
    (folder / "unlabeled").rename(folder / "train" / "unlabeled")


def within_test(folder):
    parted(folder)
    save(folder / "test" / "cat" / "x.png", noise(50, 8, 8))
    (folder / "unlabeled").rename(folder / "test" / "Unlabeled")


def test_a_picture_that_may_not_be_read_is_not_called_damaged(album, refused, tmp_path, unreadable):
    unreadable("0.png")
    said = refused("pack", album, "--size", 8, "--out", tmp_path / "my.npz")
    assert "0.png may not be read: allow that, or leave it out" in said and "damaged (" not in said


@pytest.mark.parametrize(
    ("harm", "sentence"),
    [
        (capitalized, "Test would be a class, expected the spelling test of that part: rename it, or where it is"),
        (shouted, "UNLABELED would be a class, expected the spelling unlabeled of that part: rename it"),
        (half_capitalized, "Test would be a class, expected the spelling test of that part: rename it"),
        (in_british, "unlabelled would be a class, expected the spelling unlabeled of that part: rename it"),
        (underscored, "_unlabeled would be a class, expected the spelling unlabeled of that part: rename it"),
        (at_length, "training would be a class, expected the spelling train of that part: rename it"),
        (
            several_damaged,
            "1.PNG is no picture that can be read: leave it out, or save it anew; 2 more pictures cannot be read "
            "either (cat/1.png, unlabeled/2.png): --skip-damaged does without",
        ),
        (
            within_train,
            "train/unlabeled would be a class, expected the pictures without a label outside of train: put",
        ),
        (
            within_test,
            "test/Unlabeled would be a class, expected the pictures without a label outside of test: put it",
        ),
        (damaged, "0.png is damaged ("),
        (text, "0.png is no picture that can be read: leave it out, or save it anew: --skip-damaged does without"),
        (deep, "0.png has more than eight bits for a number (I"),
        (huge, "0.png is a picture of absurd size: make it smaller, or leave it out"),
        (loose, "loose.png lies in no folder of a class: put it into one, or into unlabeled"),
        (beside, "beside.png lies in no folder of a class"),
        (unsorted, "unsorted.png lies in no folder of a class"),
        (untested, "test has no pictures: add some, or remove it to have some of train drawn"),
        (single, "class bird has one picture, expected at least two, one of them for test"),
        (half, "has a folder test but none train: arrange them as train/CLASS"),
        (strange, "has the class horse, which"),
        (misnamed, "val is none of train, test, unlabeled: rename it, or put it elsewhere"),
    ],
)
def test_what_cannot_become_a_data_set_is_refused_in_one_sentence(harm, sentence, album, tmp_path, refused):
    harm(album)
    assert sentence in refused("pack", album, "--size", 8, "--out", tmp_path / "my.npz")
    assert not list(tmp_path.glob("*my.npz*"))


def test_pictures_that_cannot_be_read_are_left_out_where_that_is_asked_for(album, tmp_path, capsys, refused):
    whole = packed(album, tmp_path / "whole.npz", "--size", 8)
    several_damaged(album)
    made = packed(album, tmp_path / "my.npz", "--size", 8, "--skip-damaged")
    told = [line for line in capsys.readouterr().err.splitlines() if ".png" in line.lower()]
    assert len(told) == 3 and all(line.startswith("unperturbed: left out: ") for line in told)
    assert made.classes == whole.classes
    counts = [
        sum(len(part) for part in (each.train_images, each.test_images, each.unlabeled_images))
        for each in (whole, made)
    ]
    assert counts[0] - counts[1] == 3
    for path in (album / "cat").iterdir():
        path.write_bytes(b"no picture")
    words = ("pack", album, "--size", 8, "--skip-damaged", "--out", tmp_path / "none.npz")
    assert "no training picture of class cat can be read: save them anew" in refused(*words)


def test_further_pictures_become_unlabeled_images_of_a_data_set_that_is_there(album, tmp_path, capsys, refused):
    made, more = packed(album, tmp_path / "my.npz", "--size", 8), tmp_path / "more.npy"
    further = tmp_path / "further"
    for seed in range(3):
        save(further / "deep" / f"{seed}.png", noise(400 + seed, 12, 16))
    words = ["pack", str(further), "--like", str(tmp_path / "my.npz"), "--out", str(more)]
    cli.main(words)
    said = capsys.readouterr().out
    images = np.load(more)
    assert images.dtype == np.uint8 and images.shape == (3, *made.train_images.shape[1:])
    assert f"3 unlabeled images of {' x '.join(map(str, images.shape[1:]))}; next: add --unlabeled" in said
    recipe = ["digits-pixel-srt", "--data.name", tmp_path / "my.npz", "--data.labeled", "None", "--batch", 8]
    cli.main(["train", *map(str, recipe), "--steps", "2", "--unlabeled", str(more), "--out", str(tmp_path / "run")])
    more.unlink()
    (further / "broken.png").write_bytes(b"no picture")
    (further / "also.png").write_bytes(b"no picture")
    assert "1 more picture cannot be read either (further/broken.png): --skip-damaged does" in refused(*words)
    cli.main([*words, "--skip-damaged"])
    assert len(np.load(more)) == 3
    more.unlink()
    for wrong, sentence in (
        (["--size", "8"], "--size would do nothing, for --like tells the shape of all images"),
        (["--out", str(tmp_path / "more.npz")], "--out must end in .npy"),
        (["--like", "my.npz", "--data", str(tmp_path / "nowhere")], "the data file my.npz does not exist"),
    ):
        assert sentence in refused(*words, *wrong)
    cli.main([*words, "--skip-damaged", "--like", "my.npz", "--data", str(tmp_path)])
    assert len(np.load(more)) == 3
    assert "test image" not in capsys.readouterr().err
    cli.main(["pack", str(album), *words[2:4], "--out", str(tmp_path / "all.npy")])
    repeated = f"{len(made.test_images)} test images can also be found among the others, to the last bit"
    assert repeated in capsys.readouterr().err
    assert "--data would do nothing, for no data set is named by --like" in refused(
        "pack", further, "--data", tmp_path
    )
    (tmp_path / "empty").mkdir()
    empty = ["pack", str(tmp_path / "empty"), *words[2:4], "--out", str(tmp_path / "none.npy")]
    assert "empty has no pictures: name a folder that does" in refused(*empty)


def test_words_that_make_no_sense_are_refused_in_one_sentence(album, tmp_path, refused):
    (tmp_path / "there.npz").write_bytes(b"mine")
    (tmp_path / "empty").mkdir()
    out = tmp_path / "my.npz"
    damaged(album)  # What is wrong with words is said before any picture is read.
    for words, sentence in (
        ((), "pack needs a folder of pictures first"),
        (
            ("my", "pictures"),
            "pack takes one folder, got 2 (my, pictures): quote a name with blanks, and put several",
        ),
        ((tmp_path / "nowhere", "--out", out), "nowhere is no folder: name one that holds train/CLASS"),
        ((tmp_path / "empty", "--out", out), "empty has 0 folders with pictures, expected one for each class"),
        ((album, "--out", tmp_path / "there.npz"), "there.npz is there already: name another --out, or delete it"),
        ((album, "--out", tmp_path / "my.zip"), "--out must end in .npz"),
        ((album, "--out", tmp_path / "there.npz" / "my.npz"), "there.npz is no directory): what was there before"),
        ((album, "--out", out, "--test", "0"), "--test must be a share between 0 and 1, got 0.0"),
        ((album, "--out", out, "--seed", "-1"), "--seed must be a whole number from 0 on, got -1"),
        ((album, "--out", out, "--size", "1", "2", "3"), "--size takes one number or two, height and width, got 3"),
        ((album, "--out", out, "--size", "0"), "--size must"),
    ):
        assert sentence in refused("pack", *words)
    assert (tmp_path / "there.npz").read_bytes() == b"mine"
    assert not out.exists()


def test_a_model_trained_on_pictures_is_asked_about_others(album, tmp_path, capsys):
    made = packed(album, tmp_path / "my.npz")
    run = tmp_path / "run"
    recipe = ["digits-pixel-srt", "--data.name", tmp_path / "my.npz", "--data.labeled", "None", "--batch", 8]
    cli.main(["train", *map(str, recipe), "--steps", "3", "--data.crop", "0", "--out", str(run)])
    (tmp_path / "my.npz").unlink()
    capsys.readouterr()
    cli.main(["predict", str(run), str(album / "unlabeled"), str(album / "cat" / "3.png"), "--json"])
    rows = json.loads(capsys.readouterr().out)
    assert [row["picture"] for row in rows] == [
        *(str(album / "unlabeled" / f"{number}.png") for number in range(5)),
        str(album / "cat" / "3.png"),
    ]
    assert {row["answer"] for row in rows} <= set(made.classes)
    assert all(0.5 <= row["probability"] <= 1 and row["under"] == {} for row in rows)
    cli.main(["predict", str(run), str(album / "cat"), "--attacks", "pgd", "--budget.eps", "0.5"])
    said = capsys.readouterr().out
    assert re.search(r"^answers that stand under pgd \(Linf 0.5, .*\): \d+ of 10$", said, re.M)
    with pytest.raises(
        SystemExit, match=r"--budget\.eps would do nothing, for no attack is asked for: add --attacks"
    ):
        cli.main(["predict", str(run), str(album / "cat"), "--budget.eps", "0.5"])


def test_an_answer_stands_where_an_attack_leaves_its_class():
    finished = SimpleNamespace(classes=("cat", "dog"))
    pgd = SimpleNamespace(name="pgd", budget="Linf 0.1", predicted=torch.tensor([0, 0, NO_CLASS]))
    report = SimpleNamespace(attacks=[pgd])
    paths, said, sure = [Path("[a].png"), Path("b.png"), Path("c.png")], [0, 1, 1], [0.9, 0.8, 0.7]
    rows = answered(finished, paths, torch.tensor(said), torch.tensor(sure), report)
    assert [row["under"]["pgd"] for row in rows] == [
        {"answer": "cat", "stands": True},
        {"answer": "cat", "stands": False},
        {"answer": None, "stands": False},
    ]
    *_, first, second, third, _, last = as_text(rows, report).splitlines()
    assert [cell.strip() for cell in first.split("│")[1:-1]] == ["[a].png", "cat", "90.0%", "stands"]
    assert [cell.strip() for cell in second.split("│")[1:-1]] == ["b.png", "dog", "80.0%", "cat"]
    assert [cell.strip() for cell in third.split("│")[1:-1]] == ["c.png", "dog", "70.0%", "NaN"]
    assert last == "answers that stand under pgd (Linf 0.1): 1 of 3"


def test_of_many_attacks_those_under_which_an_answer_falls_share_a_column():
    finished = SimpleNamespace(classes=("cat", "stands"))
    found = {f"attack-{number}": [0, number % 2] for number in range(MOST_COLUMNS)} | {"last": [NO_CLASS, 1]}
    attacks = [
        SimpleNamespace(name=name, budget="much", predicted=torch.tensor(said)) for name, said in found.items()
    ]
    for given, first, second in (
        (attacks, ["6 of 7", "NaN: last"], ["4 of 7", "cat: attack-0, attack-2, attack-4"]),
        (attacks[:MOST_COLUMNS], ["stands"] * MOST_COLUMNS, ["cat", "stands"] * (MOST_COLUMNS // 2)),
    ):
        report = SimpleNamespace(attacks=given)
        paths = [Path("a.png"), Path("b.png")]
        rows = answered(finished, paths, torch.tensor([0, 1]), torch.tensor([0.9, 0.8]), report)
        lines = [line for line in as_text(rows, report).splitlines() if ".png" in line]
        cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines]
        assert cells == [["a.png", "cat", "90.0%", *first], ["b.png", "stands", "80.0%", *second]]


def test_classes_that_are_called_like_a_word_of_the_table_are_told_from_it():
    finished = SimpleNamespace(classes=("stands", "NaN"))
    found = {f"attack-{number}": [0, 1, NO_CLASS, 0] for number in range(MOST_COLUMNS + 1)}
    attacks = [
        SimpleNamespace(name=name, budget="much", predicted=torch.tensor(said)) for name, said in found.items()
    ]
    for given, under in (
        (attacks[:1], ["stands", "'NaN'", "NaN", "'stands'"]),
        (attacks, ["", "'NaN': attack-0", "NaN: attack-0", "'stands': attack-0"]),
    ):
        answers, paths = torch.tensor([0, 0, 0, 1]), [Path(f"{name}.png") for name in "abcd"]
        rows = answered(finished, paths, answers, torch.full((4,), 0.9), SimpleNamespace(attacks=given))
        lines = [line for line in as_text(rows, SimpleNamespace(attacks=given)).splitlines() if ".png" in line]
        cells = [line.split("│")[-2].strip() for line in lines]
        assert [cell.split(",")[0] for cell in cells] == under


@pytest.mark.parametrize("width", [80, 118])
def test_no_word_in_the_table_of_answers_breaks(width):
    finished = SimpleNamespace(classes=("cat", "dog"))
    names = ["fgsm", "pgd", "randadv", "gridadv", "blur", "color"]
    attacks = [SimpleNamespace(name=name, budget="much", predicted=torch.tensor([0, 1])) for name in names]
    report, paths = SimpleNamespace(attacks=attacks), [Path("digits/test") / f"{name}.png" for name in "ab"]
    rows = answered(finished, paths, torch.tensor([0, 0]), torch.tensor([0.9, 0.8]), report)
    lines = as_text(rows, report, width).splitlines()
    words = {word for line in lines for word in line.split() if len(word) > 1}
    assert {*map(str, paths), "picture", "answer", "cat", "90.0%"} <= words
    assert max(map(len, lines[:-6])) <= width
    assert ("else" in words) == (width == 80)


def test_names_are_shown_as_they_are_and_to_their_end():
    finished = SimpleNamespace(classes=(":dog:",))
    paths = [Path("holiday_" * 20) / f"{number}.png" for number in range(2)]
    rows = answered(finished, paths, torch.tensor([0, 0]), torch.tensor([1.0, 1.0]), None)
    text = "".join(line.split("│")[1].strip() for line in as_text(rows, None).splitlines() if "│" in line)
    assert all(str(path) in text for path in paths)
    assert ":dog:" in as_text(rows, None)


def test_a_model_that_answers_nan_and_a_folder_without_pictures_are_refused(album, tmp_path, refused):
    packed(album, tmp_path / "my.npz")
    run = tmp_path / "run"
    recipe = ["digits-pixel-srt", "--data.name", tmp_path / "my.npz", "--data.labeled", "None", "--batch", 8]
    cli.main(["train", *map(str, recipe), "--steps", "2", "--data.crop", "0", "--out", str(run)])
    (tmp_path / "empty").mkdir()
    picture = album / "cat" / "3.png"
    assert "empty holds no picture" in refused("predict", run, picture, tmp_path / "empty")
    several_damaged(album)
    said = refused("predict", run, album)
    assert "2 more pictures cannot be read either (more/1.PNG, unlabeled/2.png)" in said
    assert "--skip-damaged" not in said
    weights = safetensors.torch.load_file(run / "model.safetensors")
    with safetensors.safe_open(run / "model.safetensors", "pt") as file:
        told = file.metadata()
    spoiled = {name: tensor * torch.nan for name, tensor in weights.items()}
    safetensors.torch.save_file(spoiled, run / "model.safetensors", metadata=told)
    assert "the model answers" in refused("predict", run, picture)
    assert "3.png with NaN" in refused("predict", run, picture)
