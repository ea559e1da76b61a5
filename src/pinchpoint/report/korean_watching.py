"""The words of ``pinchpoint watch``, in Korean."""

from __future__ import annotations

__all__ = ["WATCHING"]

WATCHING = {
    "watching.head": "소스 {n}개 중 {up}개 감시 중, {time}",
    "watching.head.one": "소스 1개 중 {up}개 감시 중, {time}",
    "watching.end": "Ctrl-C로 끝냄",
    "watching.col.source": "소스",
    "watching.col.state": "상태",
    "watching.col.ports": "항목",
    "watching.col.hz": "읽기/s",
    "watching.col.refresh": "갱신 주기",
    "watching.col.cost": "CPU/읽기",
    "watching.state.up": "정상",
    "watching.state.down": "끊김",
    "watching.state.opening": "여는 중",
    "watching.line": "{time}: {sources}",
    "watching.done": "{time} 동안 감시함, {rows}행.",
    "watching.source": "항목 {n}개, 초당 {hz}번 읽음, 갱신 주기 {refresh}, 한 번 읽을 때 CPU {cost}",
    "watching.source.one": "항목 1개, 초당 {hz}번 읽음, 갱신 주기 {refresh}, 한 번 읽을 때 CPU {cost}",
    "watching.outages": "{n}번 끊김: {why}",
    "watching.outages.one": "한 번 끊김: {why}",
    "watching.down": "끊김: {why}",
    "picture.network.engine.title": "엔진: 실행 중인 요청과 대기 중인 요청",
    "picture.network.engine": "요청",
    "picture.network.engine.running": "실행 중",
    "picture.network.engine.waiting": "대기 중",
}
