"""Splits, batches, augmentation and the checks of images and labels."""

from dataclasses import FrozenInstanceError

import pytest
import torch
from torch.nn import functional as F

from unperturbed import batches as batches_module
from unperturbed.batches import ProportionalBatches
from unperturbed.data import Data, augment, split
from unperturbed.inputs import as_float, check_images, check_labels


def labels_with(*counts: int) -> torch.Tensor:
    """Shuffled labels with so many of each class."""
    labels = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    return labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(5))]


def class_counts(labels: torch.Tensor, rows: torch.Tensor, classes: int) -> list[int]:
    return torch.bincount(labels[rows], minlength=classes).tolist()


# The recipe


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"labeled": 0}, "--data.labeled must be at least 1, got 0"),
        ({"unlabeled": -1}, "--data.unlabeled must be at least 0, got -1"),
        ({"validation": -1}, "--data.validation must be at least 0, got -1"),
        ({"labeled": 5, "validation": 5}, "--data.validation 5 leaves none of the 5"),
        ({"split": "last"}, "--data.split must be balanced or first, got 'last'"),
        ({"crop": -1}, "--data.crop must be a whole number of at least 0, got -1"),
        ({"crop": 1.5}, "--data.crop must be a whole number of at least 0, got 1.5"),
    ],
)
def test_data_refuses_bad_values(values, words):
    with pytest.raises(ValueError, match=words):
        Data(**values)


def test_data_accepts_the_smallest_values_and_is_frozen():
    data = Data(labeled=2, validation=1, unlabeled=0)
    assert Data(labeled=1).labeled == 1
    assert Data(labeled=None, validation=10**6).labeled is None
    with pytest.raises(FrozenInstanceError):
        data.labeled = 3


# The split


def test_balanced_split_takes_the_same_number_of_each_class():
    labels = labels_with(50, 60, 70)
    parts = split(labels, Data(labeled=45, validation=15), 3)
    assert class_counts(labels, parts.labeled, 3) == [10, 10, 10]
    assert class_counts(labels, parts.validation, 3) == [5, 5, 5]


def test_split_covers_everything_without_overlap():
    labels = labels_with(50, 60, 70)
    parts = split(labels, Data(labeled=45, validation=15), 3)
    assert torch.cat(parts).sort().values.tolist() == list(range(180))


@pytest.mark.parametrize("labeled", [31, 40, 47, 59])
@pytest.mark.parametrize("validation", [0, 3, 7, 12, 19])
def test_counts_of_a_balanced_split_differ_by_at_most_one(labeled, validation):
    labels = labels_with(*[20] * 10)
    parts = split(labels, Data(labeled=labeled, validation=validation), 10)
    assert (len(parts.labeled), len(parts.validation)) == (labeled - validation, validation)
    for part in parts.labeled, parts.validation:
        counts = class_counts(labels, part, 10)
        assert max(counts) - min(counts) <= 1


def test_a_scarce_class_is_taken_whole_and_the_others_fill_up():
    labels = labels_with(3, 100, 100, 6)
    parts = split(labels, Data(labeled=40), 4)
    assert class_counts(labels, parts.labeled, 4) == [3, 16, 15, 6]


def test_validation_leaves_a_scarce_class_one_image_to_train_on():
    labels = labels_with(1, 50, 50)
    parts = split(labels, Data(labeled=41, validation=20), 3)
    assert class_counts(labels, parts.labeled, 3) == [1, 10, 10]
    assert class_counts(labels, parts.validation, 3) == [0, 10, 10]
    as_many_as_can_be = split(labels_with(1, 5), Data(labeled=6, validation=4), 2)
    assert as_many_as_can_be.labeled.tolist()[0] == 0
    assert len(as_many_as_can_be.labeled) == 2


def test_validation_of_all_images_is_balanced():
    labels = labels_with(30, 40, 50)
    parts = split(labels, Data(labeled=None, validation=15), 3)
    assert class_counts(labels, parts.validation, 3) == [5, 5, 5]
    assert len(parts.labeled) == 105
    assert len(parts.unlabeled) == 0


def test_split_is_a_function_of_the_seed():
    labels = labels_with(50, 60, 70)
    one, same, other = (split(labels, Data(labeled=30, validation=6, seed=seed), 3) for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(one, same, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_split_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    split(labels_with(20, 20), Data(labeled=10), 2)
    ProportionalBatches(labeled=10, unlabeled=30, batch=8, seed=9).rows(0)
    assert torch.equal(torch.get_rng_state(), before)


def test_validation_comes_out_of_the_same_labeled_images():
    labels = labels_with(50, 60, 70)
    without = split(labels, Data(labeled=30), 3)
    with_some = split(labels, Data(labeled=30, validation=7), 3)
    both = torch.cat((with_some.labeled, with_some.validation))
    assert both.sort().values.tolist() == without.labeled.sort().values.tolist()


def test_a_smaller_unlabeled_part_is_a_random_subset_of_the_rest():
    labels = labels_with(500, 500)
    everything = split(labels, Data(labeled=20), 2)
    some = split(labels, Data(labeled=20, unlabeled=100), 2)
    assert len(some.unlabeled) == len(some.unlabeled.unique()) == 100
    assert set(some.unlabeled.tolist()) < set(everything.unlabeled.tolist())
    assert some.unlabeled.float().mean() == pytest.approx(500, abs=100)
    assert labels[some.unlabeled].float().mean() == pytest.approx(0.5, abs=0.15)
    assert len(split(labels, Data(labeled=20, unlabeled=0), 2).unlabeled) == 0


def test_first_split_keeps_the_file_order():
    labels = torch.arange(40) % 2
    parts = split(labels, Data(labeled=10, validation=4, unlabeled=5, split="first"), 2)
    assert parts.labeled.tolist() == [0, 1, 2, 3, 4, 5]
    assert parts.validation.tolist() == [6, 7, 8, 9]
    assert parts.unlabeled.tolist() == [10, 11, 12, 13, 14]


@pytest.mark.parametrize("how", ["balanced", "first"])
def test_extra_images_are_unlabeled_ones_after_the_rest(how):
    labels = torch.arange(40) % 2
    parts = split(labels, Data(labeled=10, split=how), 2, extra=5)
    assert set(parts.unlabeled.tolist()) >= {40, 41, 42, 43, 44}
    assert len(parts.unlabeled) == 35
    assert max(parts.labeled.tolist()) < 40


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"labeled": 41}, "--data.labeled 41 is more than the 40 images"),
        ({"labeled": 10, "unlabeled": 31}, "--data.unlabeled 31 is more than the 30 images that 10 labeled"),
        ({"labeled": None, "unlabeled": 1}, "--data.unlabeled 1 is more than the 0 images"),
        ({"labeled": None, "validation": 40}, "--data.validation 40 leaves none of the 40"),
    ],
)
def test_split_refuses_more_than_there_is(values, words):
    with pytest.raises(ValueError, match=words):
        split(labels_with(20, 20), Data(**values), 2)


def test_a_class_without_any_training_image_is_not_blamed_on_the_split():
    """Nothing is said of test images, which may have it."""
    with pytest.raises(ValueError, match=r"class 1 .*: no training image has that label; add some, or") as refused:
        split(torch.tensor([0, 2, 0, 2]), Data(labeled=4), 3)
    assert "one of the 3 classes out, of the test images too, and number the others from 0 without a" in str(
        refused.value
    )


def test_a_class_without_labeled_images_is_named():
    in_class_order = torch.arange(40) // 10
    with pytest.raises(ValueError, match=r"class 3 .*: raise --data\.labeled, or choose --data\.split bal"):
        split(in_class_order, Data(labeled=30, split="first"), 4)
    with pytest.raises(ValueError, match=r"no labeled image of class 3 .*: raise --data\.labeled$"):
        split(in_class_order, Data(labeled=3), 4)
    with pytest.raises(ValueError, match=r"class 2 .*: raise --data\.labeled, or lower --data\.validation$"):
        split(in_class_order, Data(labeled=6, validation=3), 4)
    with pytest.raises(ValueError, match="no labeled image of class 4 "):
        split(in_class_order, Data(labeled=40), 5)


def test_split_checks_the_labels():
    with pytest.raises(ValueError, match="labels must lie in 0 to 1, got 2"):
        split(torch.tensor([0, 1, 2]), Data(labeled=2), 2)


# The batches

SIZES = [(100, 500, 64), (7, 93, 10), (1, 1, 2), (1, 0, 1), (10, 0, 3), (3, 1000, 128), (1000, 3, 50), (33, 67, 100)]


@pytest.mark.parametrize(("labeled", "unlabeled", "batch"), SIZES)
def test_every_batch_has_its_exact_share(labeled, unlabeled, batch):
    batches = ProportionalBatches(labeled=labeled, unlabeled=unlabeled, batch=batch, seed=0)
    assert batches.steps_per_epoch == (labeled + unlabeled) // batch
    share = batch * labeled / (labeled + unlabeled)
    counts = [batches.counts(step) for step in range(batches.steps_per_epoch)]
    assert all(sum(pair) == batch and pair[0] >= 1 for pair in counts)
    assert all(abs(pair[0] - max(1, share)) < 1 for pair in counts)
    expected = max(batches.steps_per_epoch, batches.steps_per_epoch * batch * labeled // (labeled + unlabeled))
    assert sum(pair[0] for pair in counts) == expected


@pytest.mark.parametrize(("labeled", "unlabeled", "batch"), SIZES)
def test_rows_match_the_counts_and_do_not_repeat_within_an_epoch(labeled, unlabeled, batch):
    batches = ProportionalBatches(labeled=labeled, unlabeled=unlabeled, batch=batch, seed=0)
    steps = batches.steps_per_epoch
    for epoch in range(2):
        rows = [batches.rows(epoch * steps + step) for step in range(steps)]
        assert [tuple(map(len, pair)) for pair in rows] == [batches.counts(step) for step in range(steps)]
        from_labeled, from_unlabeled = (torch.cat(part) for part in zip(*rows, strict=True))
        assert len(from_unlabeled.unique()) == len(from_unlabeled)
        assert len(from_labeled.unique()) == min(labeled, len(from_labeled))
        assert from_labeled.dtype == from_unlabeled.dtype == torch.int64
        assert set(from_labeled.tolist()) <= set(range(labeled))
        assert set(from_unlabeled.tolist()) <= set(range(unlabeled))


def test_an_epoch_of_whole_batches_shows_every_image_once():
    batches = ProportionalBatches(labeled=100, unlabeled=540, batch=64, seed=3)
    from_labeled, from_unlabeled = zip(*(batches.rows(step) for step in range(10)), strict=True)
    assert torch.cat(from_labeled).sort().values.tolist() == list(range(100))
    assert torch.cat(from_unlabeled).sort().values.tolist() == list(range(540))


def test_too_few_labeled_images_wrap_around():
    batches = ProportionalBatches(labeled=3, unlabeled=97, batch=10, seed=0)
    seen = torch.cat([batches.rows(step)[0] for step in range(10)]).tolist()
    assert seen == (seen[:3] * 4)[:10]
    assert sorted(seen[:3]) == [0, 1, 2]


def test_without_unlabeled_images_all_are_labeled():
    batches = ProportionalBatches(labeled=100, unlabeled=0, batch=25, seed=0)
    assert batches.counts(7) == (25, 0)
    assert batches.rows(7)[1].tolist() == []


def test_a_batch_depends_on_seed_and_step_alone():
    def batch(seed, step):
        return torch.cat(ProportionalBatches(labeled=50, unlabeled=50, batch=20, seed=seed).rows(step)).tolist()

    later = batch(4, 1234)
    batch(4, 0), batch(4, 7)
    assert batch(4, 1234) == later
    assert len({tuple(batch(seed, step)) for seed in (4, 5) for step in (0, 5, 10, 1234)}) == 8


def test_labeled_and_unlabeled_parts_are_shuffled_apart():
    batches = ProportionalBatches(labeled=64, unlabeled=64, batch=128, seed=0)
    from_labeled, from_unlabeled = batches.rows(0)
    assert not torch.equal(from_labeled, from_unlabeled)


def test_runs_that_train_by_turns_draw_the_order_of_an_epoch_once_each(monkeypatch):
    drawn = []
    whole = batches_module.permutation

    def counted(size: int, seed: int, epoch: int, part: str) -> torch.Tensor:
        drawn.append((seed, epoch, part))
        return whole(size, seed, epoch, part)

    monkeypatch.setattr(batches_module, "permutation", counted)
    runs = [ProportionalBatches(labeled=20, unlabeled=60, batch=8, seed=seed) for seed in range(6)]
    for step in range(20):
        for run in runs:
            run.rows(step)
    assert len(drawn) == len(set(drawn)) == len(runs) * 2 * 2, "two epochs, of labeled and of unlabeled images"


def test_changing_a_batch_does_not_change_the_next_time():
    batches = ProportionalBatches(labeled=8, unlabeled=8, batch=8, seed=0)
    before = [part.clone() for part in batches.rows(0)]
    for part in batches.rows(0):
        part.zero_()
    assert all(torch.equal(a, b) for a, b in zip(before, batches.rows(0), strict=True))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            (100, 0, 128),
            r"batch of 128 is larger than the 100 training images: lower batch \(--batch\) to at most 100, ",
        ),
        ((50, 50, 101), "batch of 101 is larger than the 100 training images"),
        ((10, 10, 0), "^batch must be at least 1, got 0"),
        ((0, 10, 5), "at least 1 labeled and 0 unlabeled images, got 0 and 10"),
        ((10, -1, 5), "at least 1 labeled and 0 unlabeled images, got 10 and -1"),
    ],
)
def test_batches_refuse_bad_sizes(values, words):
    labeled, unlabeled, batch = values
    with pytest.raises(ValueError, match=words):
        ProportionalBatches(labeled=labeled, unlabeled=unlabeled, batch=batch, seed=0)


# Augmentation


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_images(count: int, dtype: torch.dtype = torch.uint8) -> torch.Tensor:
    images = torch.randint(1, 256, (count, 3, 6, 9), generator=generator(1), dtype=torch.uint8)
    return images if dtype == torch.uint8 else images.to(dtype) / 255


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize(("crop", "flip"), [(2, False), (0, True), (3, True)])
def test_augment_equals_a_loop_over_the_images(crop, flip, dtype):
    images, rng = random_images(40, dtype), generator()
    offsets = torch.randint(0, 2 * crop + 1, (2, 40), generator=rng) if crop else torch.zeros(2, 40, dtype=int)
    mirrored = torch.randint(0, 2, (40, 1, 1, 1), generator=rng).flatten() if flip else torch.zeros(40)
    expected = []
    for image, top, left, mirror in zip(images, *offsets, mirrored, strict=True):
        window = F.pad(image, (crop,) * 4)[:, top : top + 6, left : left + 9]
        expected.append(window.flip(2) if mirror else window)
    augmented = augment(images, generator(), crop=crop, flip=flip)
    assert augmented.dtype == dtype
    assert torch.equal(augmented, torch.stack(expected))


def test_augment_draws_every_offset_and_both_directions():
    corner = torch.zeros(4000, 1, 5, 5)
    corner[:, :, 2, 1] = 1
    seen = augment(corner, generator(), crop=1, flip=True).flatten(1).argmax(1)
    places = torch.bincount(seen, minlength=25).reshape(5, 5)
    # Left and right of the middle column, the mirrored ones join the others.
    shares = places[1:4].sum(0) / 4000
    assert torch.allclose(shares, torch.tensor([1, 1, 2, 1, 1]) / 6, atol=0.03)
    assert torch.allclose(places.sum(1) / 4000, torch.tensor([0, 1, 1, 1, 0]) / 3, atol=0.03)


def test_augment_is_a_function_of_the_generator():
    images = random_images(40)
    one, same, other = (augment(images, generator(seed), crop=2, flip=True) for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_augment_without_anything_to_do_returns_the_images_and_draws_nothing():
    images, rng = random_images(4), generator()
    before = rng.get_state()
    assert augment(images, rng, crop=0, flip=False) is images
    assert torch.equal(rng.get_state(), before)


def test_augment_leaves_its_input_alone():
    images = random_images(8)
    augment(images, generator(), crop=2, flip=True)
    assert torch.equal(images, random_images(8))


def test_augment_takes_no_images():
    assert augment(random_images(0), generator(), crop=2, flip=True).shape == (0, 3, 6, 9)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_augment_works_where_the_images_are():
    images = random_images(40).cuda()
    augmented = augment(images, torch.Generator("cuda").manual_seed(0), crop=2, flip=True)
    assert augmented.is_cuda
    assert augmented.shape == images.shape


# Conversion and checks


def test_as_float_maps_bytes_to_the_unit_interval():
    images = torch.tensor([0, 51, 255], dtype=torch.uint8)
    assert torch.equal(as_float(images), torch.tensor([0.0, 0.2, 1.0]))
    assert torch.equal(as_float(as_float(images)), as_float(images))
    with pytest.raises(ValueError, match=r"must be uint8 or floating point, got torch\.int64"):
        as_float(images.long())


def test_check_images_accepts_what_it_should():
    check_images(torch.rand(2, 3, 4, 4))
    check_images(torch.tensor([0.0, 1.0], dtype=torch.float64).reshape(1, 1, 1, 2))
    check_images(torch.empty(0, 3, 4, 4))


@pytest.mark.parametrize(
    ("images", "words"),
    [
        (torch.zeros(2, 3, 4, 4, dtype=torch.uint8), r"images must be floating point, got torch\.uint8"),
        (torch.zeros(3, 4, 4), r"images must have the shape \(N, C, H, W\), got \(3, 4, 4\)"),
        (torch.full((1, 1, 2, 2), torch.nan), "images must be finite, got NaN or infinity"),
        (torch.full((1, 1, 2, 2), -torch.inf), "images must be finite"),
        (
            torch.full((1, 1, 2, 2), 255.0),
            r"images must lie in \[0, 1\], got a maximum of 255\.0: divide them by 255$",
        ),
        (
            torch.full((1, 1, 2, 2), 65535.0),
            r"got a maximum of 65535\.0: divide them by the largest .*, as 65535 for",
        ),
        (
            torch.full((1, 1, 2, 2), 1.5),
            r"images must lie in \[0, 1\], got a maximum of 1\.5: clip them, as by \.clamp",
        ),
        (torch.tensor([[[[-2.0, 2.0]]]]), r"got a minimum of -2\.0: leave the shifting to models\.Normalize"),
        (torch.zeros(1, 1, 2, 2).half(), r"images must have at least 32 bits, got torch\.float16.*\.float\(\)"),
        (torch.zeros(1, 1, 2, 2).bfloat16(), r"images must have at least 32 bits, got torch\.bfloat16"),
        (torch.full((1, 1, 2, 2), -0.5), r"images must lie in \[0, 1\], got a minimum of -0\.5"),
    ],
)
def test_check_images_refuses(images, words):
    with pytest.raises(ValueError, match=words):
        check_images(images)


def test_check_images_says_what_it_checked():
    with pytest.raises(ValueError, match=r"^test images must"):
        check_images(torch.zeros(1), "test images")


def test_check_labels_accepts_what_it_should():
    check_labels(torch.tensor([0, 9]), 2, 10)
    check_labels(torch.tensor([0, 9], dtype=torch.uint8), 2, 10)
    check_labels(torch.tensor([], dtype=torch.int64), 0, 10)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (torch.tensor([0.0, 1.0]), r"labels must be integers, got torch\.float32"),
        (torch.tensor([True, False]), r"labels must be integers, got torch\.bool"),
        (torch.zeros(2, 1, dtype=torch.int64), r"labels must have the shape \(2,\), got \(2, 1\)"),
        (torch.zeros(3, dtype=torch.int64), r"labels must have the shape \(2,\), got \(3,\)"),
        (torch.tensor([0, 10]), "labels must lie in 0 to 9, got 10"),
        (torch.tensor([-1, 0]), "labels must lie in 0 to 9, got -1"),
    ],
)
def test_check_labels_refuses(labels, words):
    with pytest.raises(ValueError, match=words):
        check_labels(labels, 2, 10)
