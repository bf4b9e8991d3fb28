"""What operations are taken for, by names that real libraries use."""

from __future__ import annotations

import pytest

from probes.traces.classify import OpKind, is_expert, is_graph_launch, is_host_blocked, is_launch, op_kind


@pytest.mark.parametrize(
    "name",
    [
        "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
        "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)",
        "rcclGenericKernel<1, false>",
        "void multimem_all_reduce_kernel<...>",
        "symm_mem::one_shot_all_reduce_kernel",
        "two_shot_all_reduce_kernel",
        "void sglang::cross_device_reduce_1stage<__nv_bfloat16, 2>",
        "void deep_ep::intranode::dispatch<...>",
        "nvshmemi_proxy_kernel",
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport",
        "Memcpy PtoP (Device -> Device)",
    ],
)
def test_communication_is_more_than_nccl(name: str) -> None:
    assert op_kind(name) is OpKind.COMM


@pytest.mark.parametrize(
    "name", ["Memcpy HtoD (Pinned -> Device)", "Memset (Device)", "Memcpy DtoD (Device -> Device)"]
)
def test_memory(name: str) -> None:
    assert op_kind(name) is OpKind.MEMORY


@pytest.mark.parametrize(
    "name",
    [
        "fused_moe_kernel",
        "nvjet_sm90_tst_64x16_64x16_4x1_v_bz_TNT",
        "_fwd_grouped_kernel_stage1",
        "triton_red_fused_add_0",
    ],
)
def test_computing(name: str) -> None:
    assert op_kind(name) is OpKind.COMPUTE


def test_experts_are_told_from_the_rest() -> None:
    assert is_expert("fused_moe_kernel")
    assert is_expert("void cutlass::device_kernel<GroupProblemShape<...>>")
    assert not is_expert("nvjet_sm90_tst_64x16_64x16_4x1_v_bz_TNT")
    assert not is_expert("void deep_ep::expert_dispatch"), "moving tokens to experts is communication"


def test_runtime_calls() -> None:
    assert is_graph_launch("cudaGraphLaunch")
    assert is_launch("cudaLaunchKernelExC")
    assert is_launch("cuLaunchKernelEx")
    assert not is_launch("cudaStreamIsCapturing")
    assert is_host_blocked("cudaEventSynchronize")
    assert not is_host_blocked("cudaEventQuery")
