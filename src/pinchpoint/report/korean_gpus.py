"""The words of the GPUs' tables, in Korean; and what the analysis says of them."""

from __future__ import annotations

__all__ = ["GPUS", "GPUS_METRICS", "GPUS_SAID"]

GPUS: dict[str, str] = {
    "html.details.gpus": "GPU",
    "gpus.table.gpus": "각 단계의 정상 구간에서 GPU가 한 일: GPU 평균(가장 높은 GPU)",
    "gpus.table.offnode": "GPU가 보낸 것 가운데 호스트를 떠난 비율: 송신량의 NIC / (NIC + NVLink)",
    "gpus.col.rung": "단계",
    "gpus.col.source": "소스",
    "gpus.col.gpus": "GPU 수",
    "gpus.col.reads": "GPU마다 읽은 횟수",
    "gpus.col.dram": "메모리 대역폭",
    "gpus.col.tensor": "텐서 코어",
    "gpus.col.sm": "SM",
    "gpus.col.power": "W",
    "gpus.col.clock": "SM 클럭(MHz)",
    "gpus.col.throttled": "스로틀링",
    "gpus.col.host": "호스트",
    "gpus.col.offnode": "노드 밖",
    "gpus.col.ends": "읽은 값이 말하는 범위",
    "gpus.col.nic": "NIC로",
    "gpus.col.nvlink": "NVLink로",
    "gpus.col.by": "NIC를 센 곳",
    "gpus.some": "{n}행 중 {shown}행입니다. 모두 findings.json에 있습니다.",
    "gpus.unserved": "어느 소스도 제공하지 않은 것: {columns}.",
    "gpus.clock": "{mean}, 최소 {least}",
    "gpus.all_hosts": "호스트 {n}개 모두",
    "gpus.reason.power_cap": "전력 상한",
    "gpus.reason.hw_slowdown": "하드웨어 감속",
    "gpus.reason.sync_boost": "동기 부스트",
    "gpus.reason.thermal_sw": "소프트웨어의 온도 제한",
    "gpus.reason.thermal_hw": "하드웨어의 온도 제한",
    "gpus.reason.power_brake": "전력 브레이크",
    "gpus.reason.display_clocks": "디스플레이 클럭",
}

GPUS_METRICS: dict[str, str] = {
    "metric.dram_active": "메모리 대역폭 사용",
    "metric.dram_active.unit": "비율",
    "metric.dram_active.definition": (
        "GPU 메모리 인터페이스가 데이터를 주고받은 사이클의 비율(DCGM_FI_PROF_DRAM_ACTIVE): GPU마다 정상 구간에서 읽은 값의 평균을 "
        "다시 GPU들에 대해 평균한 값. 실제 도달할 수 있는 최대는 1보다 조금 낮습니다."
    ),
    "metric.tensor_active": "텐서 코어 사용",
    "metric.tensor_active.unit": "비율",
    "metric.tensor_active.definition": (
        "텐서 파이프가 일한 사이클의 비율(DCGM_FI_PROF_PIPE_TENSOR_ACTIVE), 위와 같은 평균. NVML의 사용률로는 알 수 없습니다: "
        "어떤 커널이든 실행 중이었음을 말할 뿐입니다."
    ),
    "metric.throttled": "스로틀링",
    "metric.throttled.unit": "읽은 횟수의 비율",
    "metric.throttled.definition": (
        "NVML이 클럭을 낮춘 이유를 하나라도 댄 읽기의 비율. 유휴와 누군가 정해 둔 응용 클럭은 세지 않습니다."
    ),
    "metric.offnode": "노드 밖 비율",
    "metric.offnode.unit": "보낸 옥텟의 비율",
    "metric.offnode.definition": (
        "같은 호스트들에서 정상 구간 동안 NIC 송신 / (NIC 송신 + NVLink 송신). NIC 카운터는 RDMA, 없으면 물리 포트, 없으면 커널의 "
        "값이며 서로 더하지 않습니다. 텐서 병렬도 NVLink를 쓰고, NIC 트래픽에는 KV 전송과 저장소도 들어 있습니다."
    ),
}

# English pattern -> Korean pattern; see docs/languages.md.
GPUS_SAID: dict[str, str] = {
    "{where} uses {share} of the memory bandwidth and {p} of the tensor cores (GPUs: {n}, reads of each: {m})": "{where}에서 메모리 대역폭의 {share}, 텐서 코어의 {p}을(를) 씁니다(GPU {n}개, GPU마다 {m}번 읽음)",
    "the highest of one GPU: {share} and {p}": "한 GPU의 최고값: {share}, {p}",
    "GPU clocks": "GPU 클럭",
    "clocks were held down: {reasons} of the reads ({where})": "클럭이 눌려 있었습니다: 읽은 값 가운데 {reasons}({where})",
    "clocks were held down: {reasons} of the reads ({where}), at {n} MHz on average and {m} at least": "클럭이 눌려 있었습니다: 읽은 값 가운데 {reasons}({where}), 평균 {n} MHz, 최저 {m} MHz",
    "hardware slowdown {share}": "하드웨어 감속 {share}",
    "heat, by hardware {share}": "하드웨어의 온도 제한 {share}",
    "heat, by software {share}": "소프트웨어의 온도 제한 {share}",
    "power brake {share}": "전력 제동 {share}",
    "the power cap held clocks down in {share} of the reads ({where}); what that costs is not known": "읽은 값의 {share}에서 전력 상한이 클럭을 눌렀습니다({where}). 그로 인한 손실은 알 수 없습니다",
    "the power cap held clocks down in {share} of the reads ({where}), at {n} MHz on average and {m} at least; what that costs is not known": "읽은 값의 {share}에서 전력 상한이 클럭을 눌렀습니다({where}, 평균 {n} MHz, 최저 {m} MHz). 그로 인한 손실은 알 수 없습니다",
    "the same rung under another power limit": "다른 전력 한도에서 잰 같은 단계",
    "nothing held clocks down in {n} read": "{n}번 읽는 동안 클럭을 누른 것은 없습니다",
    "nothing held clocks down in {n} reads": "{n}번 읽는 동안 클럭을 누른 것은 없습니다",
    "not served": "제공되지 않습니다",
    "not served: only DCGM's profiling gauges show it (gpu://HOST:9400)": "제공되지 않습니다: DCGM의 프로파일링 게이지에만 있습니다(gpu://HOST:9400)",
    "no read within the steady window": "정상 구간 안에서 읽은 값이 없습니다",
    "the rung lasts {a} s, the gauges are refreshed every {b} s": "단계는 {a} s인데 게이지는 {b} s마다 갱신됩니다",
    "no NIC counter of this host was read": "이 호스트의 NIC 카운터를 읽지 않았습니다",
    "no NIC counter of this host was read (of {NAMES} only)": "이 호스트의 NIC 카운터를 읽지 않았습니다({NAMES}의 것만 읽음)",
    "no NIC's rate could be read": "읽을 수 있는 NIC 속도가 없습니다",
    "no NVLink counter of its GPUs is served": "이 호스트의 GPU는 NVLink 카운터를 제공하지 않습니다",
    "no NVLink counter of GPU {NAMES} is served": "GPU {NAMES}은(는) NVLink 카운터를 제공하지 않습니다",
    "NVLink of GPU {NAME}: {why}": "GPU {NAME}의 NVLink: {why}",
    "its counter was read once": "카운터를 한 번만 읽었습니다",
    "its counter fell (the driver was loaded anew, or the counter was cleared)": "카운터가 줄었습니다(드라이버를 다시 올렸거나 카운터를 지움)",
    "its reads reach over {share} of the rung only": "읽은 값이 단계의 {share}에만 걸쳐 있습니다",
    "the reads do not reach over both ends of the window": "읽은 값이 구간의 양 끝을 덮지 않습니다",
    "neither the NICs nor NVLink carried anything": "NIC도 NVLink도 나른 것이 없습니다",
    "not known of {NAMES}": "{NAMES}에 대해서는 알 수 없습니다",
    "tensor parallelism uses NVLink too, so this is not the share of expert traffic that leaves the node": "텐서 병렬도 NVLink를 쓰므로, 이는 노드를 떠나는 전문가 트래픽의 비율이 아닙니다",
    "NIC traffic also holds KV transfer, storage and whatever else leaves the host": "NIC 트래픽에는 KV 전송, 저장소, 그 밖에 호스트를 떠나는 모든 것도 들어 있습니다",
    "the kernel's counters do not hold what bypasses it: RDMA traffic is missing from them": "커널 카운터에는 커널을 거치지 않는 것이 없습니다: RDMA 트래픽이 빠져 있습니다",
    "NVLink is counted without its protocol, NICs with their frame headers": "NVLink는 프로토콜을 뺀 값, NIC는 프레임 헤더를 포함한 값입니다",
    "the NICs' ports sent {n} times what RDMA devices counted: their counters leave out what GPUs post themselves": "NIC 포트가 보낸 것이 RDMA 장치가 센 것의 {n}배입니다: RDMA 카운터에는 GPU가 직접 올린 것이 없습니다",
    "the NICs' ports sent while RDMA devices counted nothing: their counters leave out what GPUs post themselves": "RDMA 장치는 아무것도 세지 않았는데 NIC 포트는 보냈습니다: RDMA 카운터에는 GPU가 직접 올린 것이 없습니다",
}
