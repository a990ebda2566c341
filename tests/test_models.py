"""The networks: sizes that are published, shapes that come out, and the check on networks that come in."""

from copy import deepcopy
from dataclasses import FrozenInstanceError
from math import sqrt

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unperturbed.inputs import output_classes
from unperturbed.models import (
    Architecture,
    DigitsCNN,
    Normalize,
    PreActResNet18,
    ResNet,
    ResNet18,
    SmallCNN,
    Standardize,
    Step,
    WideResNet,
    pool_and_pad,
)

TINY = [
    pytest.param(DigitsCNN(channels=(4, 6, 8), hidden=10), 4, id="DigitsCNN"),
    pytest.param(SmallCNN(), 16, id="SmallCNN"),
    pytest.param(ResNet(filters=(4, 4, 7, 12), units=2), 4, id="ResNet"),
    pytest.param(ResNet18(), 8, id="ResNet18"),
    pytest.param(PreActResNet18(), 8, id="PreActResNet18"),
    pytest.param(WideResNet(depth=10, width=1, dropout=0.3), 4, id="WideResNet"),
]
every_architecture = pytest.mark.parametrize(("architecture", "smallest"), TINY)


def fresh(architecture: Architecture, shape: tuple[int, int, int], classes: int, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return architecture(shape, classes)


def decided(network: nn.Module) -> nn.Module:
    """The network with a last layer that is not zero, as SmallCNN's is at first."""
    *_, last = (layer for layer in network.modules() if isinstance(layer, nn.Linear))
    nn.init.normal_(last.weight)
    return network


@pytest.mark.parametrize(
    ("architecture", "shape", "parameters"),
    [
        (DigitsCNN(), (1, 8, 8), 23_034),
        (SmallCNN(), (1, 28, 28), 312_202),
        # He et al.'s ResNet-32 with shortcuts of type A; moving its BatchNorms before the convolutions adds nothing.
        (ResNet(), (3, 32, 32), 464_154),
        (ResNet18(), (3, 32, 32), 11_173_962),
        # Nothing normalizes the last sum of pre-activation units, so He et al. end with one more BatchNorm;
        # without its 2 * 512 parameters there are 11,171,146.
        (PreActResNet18(), (3, 32, 32), 11_172_170),
        (WideResNet(depth=28), (3, 32, 32), 36_479_194),
        # TRADES' own file reports more, for it also holds a first group that no image ever passes through.
        (WideResNet(), (3, 32, 32), 46_160_474),
    ],
    ids=repr,
)
def test_parameters_are_as_many_as_published(
    architecture: Architecture, shape: tuple[int, int, int], parameters: int
):
    with torch.device("meta"):
        network = architecture(shape, 10)
    assert sum(parameter.numel() for parameter in network.parameters()) == parameters


@every_architecture
@pytest.mark.parametrize("channels", [1, 5])
def test_any_channels_and_odd_sizes(architecture: Architecture, smallest: int, channels: int):
    shape = (channels, smallest + 1, smallest + 6)
    network = architecture(shape, 7)
    assert isinstance(architecture, Architecture)
    assert network(torch.rand(3, *shape)).shape == (3, 7)
    assert output_classes(network, torch.rand(3, *shape)) == 7


@every_architecture
def test_the_smallest_image_passes_and_a_smaller_one_is_refused(architecture: Architecture, smallest: int):
    network = architecture((1, smallest, smallest), 2).eval()
    assert network(torch.rand(1, 1, smallest, smallest)).shape == (1, 2)
    name = type(architecture).__name__
    for shape in [(1, smallest - 1, smallest), (1, smallest, smallest - 1), (0, 32, 32), (32, 32)]:
        with pytest.raises(
            ValueError, match=rf"^{name} needs images of shape \(1, {smallest}, {smallest}\) or larger"
        ):
            architecture(shape, 2)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=rf"^{name} needs at least 2 classes, got 1: label images of two or more$"):
        architecture((1, 32, 32), 1)


@every_architecture
def test_the_seed_decides_the_weights(architecture: Architecture, smallest: int):
    shape = (2, smallest, smallest)
    first, again, other = (fresh(architecture, shape, 3, seed).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


@every_architecture
def test_states_are_tensors_and_copies_are_independent(architecture: Architecture, smallest: int):
    network = fresh(architecture, (1, smallest, smallest), 3)
    copied = deepcopy(network)
    assert all(isinstance(value, Tensor) for value in network.state_dict().values())
    with torch.no_grad():
        for parameter in copied.parameters():
            parameter.add_(1)
    for before, after in zip(network.parameters(), copied.parameters(), strict=True):
        assert not torch.equal(before, after)


@every_architecture
def test_attacks_reach_the_images_of_a_frozen_network(architecture: Architecture, smallest: int):
    shape = (3, smallest, smallest)
    network = decided(fresh(architecture, shape, 4)).eval().requires_grad_(False)
    before = deepcopy(network.state_dict())
    x = torch.rand(2, *shape, requires_grad=True)
    (gradient,) = torch.autograd.grad(F.cross_entropy(network(x), torch.tensor([0, 3])), x)
    assert gradient.isfinite().all()
    assert (gradient.flatten(1).norm(dim=1) > 0).all()
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())


@every_architecture
def test_in_evaluation_an_image_is_judged_alone_and_the_memory_format_is_immaterial(
    architecture: Architecture, smallest: int
):
    shape = (3, smallest, smallest + 3)
    network = decided(fresh(architecture, shape, 4))
    x = torch.rand(4, *shape)
    network(x)
    network.eval()
    logits = network(x)
    assert torch.equal(logits, network(x))
    torch.testing.assert_close(network(x[:1]), logits[:1], atol=1e-4, rtol=1e-4)
    channels_last = network.to(memory_format=torch.channels_last)(x.to(memory_format=torch.channels_last))
    torch.testing.assert_close(channels_last, logits, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("architecture", [SmallCNN(), WideResNet(depth=10, width=1, dropout=0.3)])
def test_dropout_acts_in_training_alone(architecture: Architecture):
    network = decided(fresh(architecture, (1, 16, 16), 4))
    x = torch.rand(4, 1, 16, 16)
    assert not torch.equal(network(x), network(x))
    network.eval()
    assert torch.equal(network(x), network(x))


@every_architecture
def test_every_parameter_learns(architecture: Architecture, smallest: int):
    network = decided(fresh(architecture, (1, smallest, smallest), 3))
    F.cross_entropy(network(torch.rand(8, 1, smallest, smallest)), torch.arange(8) % 3).backward()
    assert all(parameter.grad is not None for parameter in network.parameters())


def test_batch_norm_follows_training_and_rests_in_evaluation():
    network = fresh(WideResNet(depth=10, width=1), (1, 8, 8), 3)
    running = {name: value for name, value in network.named_buffers() if "running" in name}
    before = deepcopy(running)
    network.eval()(torch.rand(4, 1, 8, 8))
    assert all(torch.equal(running[name], before[name]) for name in running)
    network.train()(torch.rand(4, 1, 8, 8))
    assert not any(torch.equal(running[name], before[name]) for name in running)


def test_small_cnn_starts_undecided():
    network = fresh(SmallCNN(), (1, 28, 28), 10)
    assert torch.equal(network(torch.rand(2, 1, 28, 28)), torch.zeros(2, 10))
    convolutions = [layer for layer in network.modules() if isinstance(layer, nn.Conv2d)]
    assert all(layer.bias is not None and not layer.bias.any() for layer in convolutions)
    assert convolutions[-1].weight.std().item() == pytest.approx(sqrt(2 / (9 * 64)), rel=0.05)


@pytest.mark.parametrize("architecture", [ResNet(), WideResNet(depth=10, width=2), ResNet18()])
def test_residual_networks_start_with_normal_convolutions_of_fan_out(architecture: Architecture):
    network = fresh(architecture, (3, 32, 32), 10)
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d) and layer.weight.numel() > 2000:
            deviation = sqrt(2 / (layer.kernel_size[0] ** 2 * layer.out_channels))
            assert layer.weight.std().item() == pytest.approx(deviation, rel=0.06)
    assert all(not layer.bias.any() for layer in network.modules() if isinstance(layer, nn.Linear))


def test_a_residual_unit_without_residual_is_its_shortcut():
    network = fresh(ResNet(filters=(4, 4, 7), units=2, standardize=False), (4, 5, 5), 3).eval()
    units = network.get_submodule("units")
    for name, parameter in units.named_parameters():
        if parameter.dim() == 4:
            nn.init.zeros_(units.get_parameter(name))
    x = torch.randn(2, 4, 5, 5)
    activated = F.leaky_relu(x / sqrt(1 + 1e-5), 0.1)
    expected = torch.zeros(2, 7, 3, 3)
    expected[:, 1:5] = F.avg_pool2d(activated, 2, ceil_mode=True)
    torch.testing.assert_close(units(x), expected)


def test_pooled_shortcuts_average_what_is_there():
    pooled = pool_and_pad(Step(1, 4, stride=2))(torch.arange(9.0).view(1, 1, 3, 3))
    assert pooled[:, 1].tolist() == [[[2.0, 3.5], [6.5, 8.0]]]
    assert not pooled[:, [0, 2, 3]].any()
    x = torch.rand(2, 3, 4, 4)
    assert torch.equal(pool_and_pad(Step(3, 3))(x), x)


def test_standardize_agrees_with_a_naive_formula():
    x = torch.rand(4, 3, 5, 6)
    x[1] *= 1e-4
    for image, standardized in zip(x, Standardize()(x), strict=True):
        deviation = sqrt(((image - image.mean()) ** 2).sum() / 90)
        torch.testing.assert_close(standardized, (image - image.mean()) / max(deviation, 1 / sqrt(90)))


def test_a_uniform_image_has_finite_gradients():
    x = torch.stack([torch.zeros(3, 4, 4), torch.full((3, 4, 4), 0.5)]).requires_grad_()
    standardized = Standardize()(x)
    (gradient,) = torch.autograd.grad(standardized.square().sum() + standardized[:, 0].sum(), x)
    assert not standardized.any()
    assert gradient.isfinite().all()


def test_a_network_that_standardizes_ignores_brightness_and_contrast():
    x = torch.rand(2, 3, 8, 8)
    seeing, blind = (fresh(ResNet(units=1, standardize=flag), (3, 8, 8), 3).eval() for flag in (False, True))
    torch.testing.assert_close(blind(0.5 * x + 0.2), blind(x), atol=1e-4, rtol=1e-4)
    assert not torch.allclose(seeing(0.5 * x + 0.2), seeing(x), atol=1e-2)


def test_normalize_scales_each_channel():
    x = torch.rand(2, 3, 4, 4)
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.25, 1)
    normalize = Normalize(mean, std)
    assert set(normalize.state_dict()) == {"mean", "std"}
    for channel in range(3):
        torch.testing.assert_close(normalize(x)[:, channel], (x[:, channel] - mean[channel]) / std[channel])
    for wrong in [(0.2, 0.2), (0.2, 0.0, 0.2), (0.2, float("nan"), 0.2)]:
        with pytest.raises(ValueError, match=r"^Normalize takes a mean and a positive std for each channel, got"):
            Normalize(mean, wrong)


@pytest.mark.parametrize(
    ("impossible", "message"),
    [
        (lambda: WideResNet(depth=35), "WideResNet.depth must be 6n + 4 with n at least 1, such as 28 or 34, got 35"),
        (lambda: WideResNet(depth=4), "WideResNet.depth must be 6n + 4 with n at least 1, such as 28 or 34, got 4"),
        (lambda: WideResNet(width=0), "WideResNet.width must be at least 1, got 0"),
        (lambda: WideResNet(dropout=1.0), "WideResNet.dropout must be at least 0 and below 1, got 1.0"),
        (lambda: SmallCNN(dropout=-0.1), "SmallCNN.dropout must be at least 0 and below 1, got -0.1"),
        (lambda: SmallCNN(dropout=float("nan")), "SmallCNN.dropout must be at least 0 and below 1, got nan"),
        (lambda: ResNet(units=0), "ResNet.units must be at least 1, got 0"),
        (lambda: ResNet(filters=(16,)), "ResNet.filters must be two or more positive numbers that never fall"),
        (lambda: ResNet(filters=(16, 8)), "ResNet.filters must be two or more positive numbers that never fall"),
        (lambda: ResNet(filters=(0, 8)), "ResNet.filters must be two or more positive numbers that never fall"),
        (lambda: DigitsCNN(hidden=0), "DigitsCNN takes three channels and hidden units, all at least 1, got"),
        (lambda: DigitsCNN(channels=(4, 4)), "DigitsCNN takes three channels and hidden units, all at least 1, got"),
    ],
)
def test_impossible_networks_are_refused(impossible, message: str):
    with pytest.raises(ValueError) as refusal:
        impossible()
    assert str(refusal.value).startswith(message)


def test_architectures_are_values():
    assert WideResNet(depth=28) == WideResNet(depth=28) != WideResNet()
    assert len({ResNet18(), ResNet18(), PreActResNet18()}) == 2
    with pytest.raises(FrozenInstanceError):
        WideResNet().depth = 28  # type: ignore[misc]


def test_a_network_is_one_graph_to_the_compiler():
    network = fresh(ResNet(filters=(4, 4, 8), units=1), (3, 7, 7), 3)
    x = torch.rand(2, 3, 7, 7)
    compiled = torch.compile(deepcopy(network), fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x), network(x))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@every_architecture
def test_networks_replay_as_cuda_graphs(architecture: Architecture, smallest: int):
    shape = (3, 2 * smallest, 2 * smallest)
    network = decided(fresh(architecture, shape, 3)).cuda().to(memory_format=torch.channels_last).eval()
    x = torch.rand(2, *shape, device="cuda").to(memory_format=torch.channels_last)
    network(x)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        logits = network(x)
    x.copy_(torch.rand_like(x))
    graph.replay()
    torch.testing.assert_close(logits, network(x), atol=1e-3, rtol=1e-3)


class Answer(nn.Module):
    """Answers every batch with the same thing, and remembers the mode it was asked in."""

    def __init__(self, answer: object) -> None:
        super().__init__()
        self.answer = answer
        self.asked_in_training: bool | None = None

    def forward(self, x: Tensor) -> object:
        self.asked_in_training = self.training
        return self.answer


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((torch.zeros(4, 10), None), "got a tuple: return one tensor, the logits alone"),
        (torch.zeros(4, 10, 1, 1), "got (4, 10, 1, 1): return one row for each of the 4 images"),
        (torch.zeros(10), "got (10,): return one row for each of the 4 images"),
        (torch.zeros(8, 10), "got (8, 10): return one row for each of the 4 images"),
        (torch.zeros(4, 1), "got (4, 1): return one logit for each of at least 2 classes"),
        (torch.zeros(4, 10).long(), "as floats, got torch.int64: return the logits, before the argmax"),
        (torch.full((4, 10), torch.nan), "that are finite, got NaN or infinity: check weights and images"),
        (torch.full((4, 10), torch.inf), "that are finite, got NaN or infinity: check weights and images"),
        *[
            (answer, "got rows that are already probabilities: return the logits, before the softmax")
            for answer in (
                torch.randn(4, 10).softmax(1),
                torch.randn(4, 1000).bfloat16().softmax(1),
                torch.eye(4),
                torch.full((4, 10), 0.1),
            )
        ],
    ],
)
def test_a_model_without_logits_is_refused(answer: object, message: str):
    with pytest.raises(ValueError) as refusal:
        output_classes(Answer(answer), torch.rand(4, 3, 8, 8))
    sentence = str(refusal.value)
    assert sentence.startswith("a model must return logits of shape (batch, classes)")
    assert sentence.endswith(message)


@pytest.mark.parametrize(
    "logits",
    [
        torch.zeros(4, 10),
        torch.randn(4, 10),
        torch.randn(4, 10).half(),
        torch.randn(4, 10).log_softmax(1),
        torch.cat([torch.randn(3, 10).softmax(1), torch.zeros(1, 10)]),
        torch.tensor([[2.0, -1.0]] * 4),
    ],
)
def test_honest_logits_pass(logits: Tensor):
    assert output_classes(lambda x: logits, torch.rand(4, 3, 8, 8)) == logits.shape[1]


def test_a_model_without_images_is_not_mistaken_for_a_softmax():
    assert output_classes(nn.Flatten(), torch.rand(0, 3, 2, 2)) == 12


def test_the_check_leaves_every_mode_as_it_was():
    model = nn.Sequential(nn.BatchNorm2d(3), nn.Dropout(), Answer(torch.zeros(2, 5)))
    model[0].eval()
    weight = model[0].weight
    assert output_classes(model, torch.rand(2, 3, 4, 4)) == 5
    assert model[2].asked_in_training is False
    model[2].answer = None
    with pytest.raises(ValueError, match="got a NoneType"):
        output_classes(model, torch.rand(2, 3, 4, 4))
    with pytest.raises(RuntimeError):
        output_classes(model, torch.rand(2, 4, 4, 4))
    assert [module.training for module in model.modules()] == [True, False, True, True]
    assert weight.requires_grad
