"""Every loss formula on one worked example, to six digits, and the laws they keep."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentr1_backend_trl import losses

# Two rows of three and two tokens; what stands at the padding must not matter.
OLD = torch.tensor([[-1.0, -2.0, -0.5], [-1.0, -0.7, math.nan]])
NEW = torch.tensor([[-0.7, -2.5, -0.5], [-1.1, -0.1, math.inf]])
A = torch.tensor([[1.0, 1.0, -2.0], [-1.0, -1.0, 0.0]])
MASK = torch.tensor([[1, 1, 1], [1, 1, 0]])
SPANS = torch.tensor([[0, 0, 0], [0, 0, -1]])


def close(found, expected):
    torch.testing.assert_close(
        torch.as_tensor(found, dtype=torch.float64), torch.as_tensor(expected, dtype=torch.float64), rtol=0, atol=1e-6
    )


def row_means(per_token):
    return (per_token * MASK).sum(1) / MASK.sum(1)


def d():
    return losses.log_ratio(NEW, OLD, MASK)


def new():
    return torch.where(MASK.bool(), NEW, torch.zeros_like(NEW))


def token_mean(per_token):
    return (per_token * MASK).sum() / MASK.sum()


def test_ppo():
    loss = losses.ppo_loss(d(), A, 0.2, 0.2, 3.0)
    close(loss[0], [-1.2, -0.606531, 2])
    close(loss[1, :2], [0.904837, 1.822119])
    close(token_mean(loss), 0.584085)
    close((loss * MASK).sum(1).mean(), 1.460213)
    close(row_means(loss).mean(), 0.713984)


def test_dual_clip():
    two, bad = torch.tensor([[2.0]]), torch.tensor([[-1.0]])
    close(losses.ppo_loss(two, bad, 0.2, 0.2, 3.0), [[3.0]])
    close(losses.ppo_loss(two, bad, 0.2, 0.2), [[7.389056]])
    far = torch.tensor([[19.0]], requires_grad=True)
    losses.ppo_loss(far, bad, 0.2, 0.2).sum().backward()
    assert far.grad.item() > 1.7e8
    bounded = torch.tensor([[19.0]], requires_grad=True)
    losses.ppo_loss(bounded, bad, 0.2, 0.2, 3.0).sum().backward()
    assert bounded.grad.item() == 0


def test_clipped_tokens_are_those_without_gradient():
    ratios = torch.log(torch.tensor([[0.5, 0.5, 1.0, 1.5, 1.5]])).requires_grad_()
    advantages = torch.tensor([[1.0, -1.0, 1.0, 1.0, -1.0]])
    losses.ppo_loss(ratios, advantages, 0.2, 0.2).sum().backward()
    low, high = losses.clipped_share(ratios, advantages, 0.2, 0.2)
    assert (low + high).tolist() == (ratios.grad == 0).float().tolist()
    assert (low.tolist(), high.tolist()) == ([[0, 1, 0, 0, 0]], [[0, 0, 0, 1, 0]])


def test_gspo():
    log_s = losses.gspo_log_ratio(NEW, d(), MASK, SPANS)
    close(log_s.exp()[0], [0.935507] * 3)
    close(log_s.exp()[1, :2], [1.284025] * 2)
    close(row_means(losses.ppo_loss(log_s, A, 0.2, 0.2)).mean(), 0.642013)


def test_cispo():
    close(token_mean(losses.cispo_loss(new(), d(), A, 0.2, 0.2)), 0.144936)


def test_reinforce():
    close(token_mean(losses.reinforce_loss(new(), A)), 0.2)


def test_kl():
    old = torch.where(MASK.bool(), OLD, torch.zeros_like(OLD))
    k3 = losses.kl_k3(new(), old)
    close(k3[0], [0.040818, 0.148721, 0])
    close(k3[1, :2], [0.005171, 0.148812])
    close(losses.kl_k1(new(), old)[0], [0.3, -0.5, 0])
    close(losses.kl_k2(new(), old)[0], [0.045, 0.125, 0])


def test_kl_far_away_has_a_finite_gradient():
    logps = torch.tensor([-100.0], requires_grad=True)
    losses.kl_k3(logps, torch.tensor([-1.0])).sum().backward()
    assert torch.isfinite(logps.grad).all()


def test_engine_mismatch_weights():
    w = torch.tensor([-1, -0.1, 0, 0.5, 1.5, 6], dtype=torch.float64)
    close(losses.tis(w, 2), [0.367879, 0.904837, 1, 1.648721, 2, 2])
    close(losses.mis(w, 2), [0.367879, 0.904837, 1, 1.648721, 0, 0])
    close(losses.icepop(w, 0.5, 5), [0, 0.904837, 1, 1.648721, 4.481689, 0])
    assert torch.isfinite(losses.mis(torch.tensor([1e4]), 2)).all()


def test_value_loss():
    values, returns, old = torch.tensor([0.5, 2.0, 0.5]), torch.tensor([1.0, 1.0, 0.0]), torch.tensor([0.5, 1.2, 0.9])
    close(losses.value_loss(values, returns, old), [0.125, 0.5, 0.125])
    # Clipped: 2.0 becomes 1.4, whose smaller error does not count; 0.5 becomes 0.7, whose larger one does.
    close(losses.value_loss(values, returns, old, clip=0.2), [0.125, 0.5, 0.245])


ARMS = {
    "ppo": lambda logps, ratio, a, mask, spans: losses.ppo_loss(ratio, a, 0.2, 0.3, 3.0),
    "gspo": lambda logps, ratio, a, mask, spans: losses.ppo_loss(
        losses.gspo_log_ratio(logps, ratio, mask, spans), a, 0.2, 0.3
    ),
    "cispo": lambda logps, ratio, a, mask, spans: losses.cispo_loss(logps, ratio, a, 0.2, 0.3),
    "reinforce": lambda logps, ratio, a, mask, spans: losses.reinforce_loss(logps, a),
}
law = settings(max_examples=30, deadline=None)


def drawn(seed, batch=3, width=6):
    """Log-probs of steps laid out one after the other, with a gap of context."""
    generator = torch.Generator().manual_seed(seed)
    logps, old = -torch.rand((2, batch, width), generator=generator, dtype=torch.float64) * 2
    spans = torch.tensor([[0, 0, -1, 1, 1, 1]] * batch)
    a = torch.randn((batch, 2), generator=generator, dtype=torch.float64).gather(1, spans.clamp(min=0))
    return logps.requires_grad_(), old, a, (spans >= 0).long(), spans


@pytest.mark.parametrize("name", ARMS)
@law
@given(seed=st.integers(0, 999), scale=st.sampled_from([0.25, 2.0, 7.0]))
def test_weights_may_be_folded_into_advantages(name, seed, scale):
    logps, old, a, mask, spans = drawn(seed)
    ratio = losses.log_ratio(logps, old, mask)
    plain, scaled = (ARMS[name](logps, ratio, advantages, mask, spans) for advantages in (a, scale * a))
    torch.testing.assert_close(scaled, scale * plain)


@pytest.mark.parametrize("name", ARMS)
@law
@given(seed=st.integers(0, 999))
def test_on_policy_the_gradient_is_that_of_reinforce(name, seed):
    logps, _, a, mask, spans = drawn(seed)
    ratio = losses.log_ratio(logps, logps.detach(), mask)
    (ARMS[name](logps, ratio, a, mask, spans) * mask).sum().backward()
    torch.testing.assert_close(logps.grad, -a * mask)


@pytest.mark.parametrize("name", ARMS)
@law
@given(seed=st.integers(0, 999))
def test_merging_steps_into_one_row_changes_nothing(name, seed):
    """Each row's two steps, once in one row and once in a row each, padded with rubbish."""
    logps, old, a, mask, spans = drawn(seed)
    per_token = ARMS[name](logps, losses.log_ratio(logps, old, mask), a, mask, spans) * mask
    (merged,) = torch.autograd.grad((per_token * torch.arange(6)).sum(), logps)

    def cut(x, rubbish):
        first = torch.nn.functional.pad(x[:, :2], (0, 1), value=rubbish)
        return torch.cat([first, x[:, 3:]])

    own = cut(logps.detach(), -7.0).requires_grad_()
    apart = ARMS[name](
        own, losses.log_ratio(own, cut(old, math.nan), cut(mask, 0)), cut(a, 0.0), cut(mask, 0), cut(spans, -1)
    ) * cut(mask, 0)
    weights = torch.cat([torch.tensor([[0, 1, 0]] * 3), torch.tensor([[3, 4, 5]] * 3)])
    (separate,) = torch.autograd.grad((apart * weights).sum(), own)
    torch.testing.assert_close(apart.sum(), per_token.sum())
    torch.testing.assert_close(torch.cat([separate[:3, :2], separate[3:]], 1), merged[:, [0, 1, 3, 4, 5]])


@pytest.mark.parametrize("name", ["ppo", "gspo"])
def test_what_is_masked_never_matters(name):
    grads = []
    for rubbish in (0.0, 100.0, math.nan, math.inf, -math.inf):
        logps = torch.tensor([[-0.7, rubbish], [-0.1, -0.3]], requires_grad=True)
        old = torch.tensor([[-1.0, -rubbish], [-0.3, -0.2]])
        mask, spans = torch.tensor([[1, 0], [1, 1]]), torch.tensor([[0, 0], [0, 0]])
        a = torch.tensor([[1.0, 0.0], [-1.0, -1.0]])
        ratio = losses.log_ratio(logps, old, mask)
        (ARMS[name](logps, ratio, a, mask, spans) * mask).sum().backward()
        grads.append(logps.grad)
    for grad in grads[1:]:
        torch.testing.assert_close(grad, grads[0])


@pytest.mark.parametrize("name", ARMS)
def test_a_batch_that_is_masked_throughout_has_loss_and_gradient_zero(name):
    logps, old, a, mask, spans = drawn(0)
    nothing = torch.zeros_like(mask)
    (ARMS[name](logps, losses.log_ratio(logps, old, nothing), a, nothing, spans) * nothing).sum().backward()
    assert logps.grad.abs().max() == 0
