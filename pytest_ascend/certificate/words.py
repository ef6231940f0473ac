"""The certificate as text: derived from the statement alone, so that it cannot differ from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pytest_ascend.certificate.tiers import NEWER_CANN, SAMPLE, TIERS
from pytest_ascend.records.text import one_line

#: The parts of a stack, with readable names.
NAMES = {
    "chip": "chip",
    "driver": "driver",
    "firmware": "firmware",
    "cann": "CANN",
    "torch": "torch",
    "torch_npu": "torch_npu",
    "torch_npu_commit": "torch_npu commit",
    "python": "Python",
    "os": "OS",
    "host": "host",
}
_NAMES_ZH = {
    "chip": "芯片",
    "driver": "驱动",
    "firmware": "固件",
    "torch_npu_commit": "torch_npu 提交",
    "os": "操作系统",
    "host": "主机",
}

#: Language -> the texts of a certificate, by key. Sentences of the run and the release are not translated.
TEXTS: Mapping[str, Mapping[str, str]] = {
    "en": {
        "title": "CERTIFICATE OF CONFORMANCE, tier: {tier}",
        "number": "number {id}",
        "by": "By the run {id}, which ended on {finished}, pytest-ascend {release}:",
        "tested": "WHAT WAS TESTED",
        "unknown": "not known",
        "level": "level",
        "challenge": "challenge",
        "no-challenge": "none was given before the run",
        "not-covered": "WHAT WAS NOT TESTED, and is not certified",
        "not-again": "cases that 'verify --rerun' cannot execute again: {count} {suite}",
        "limits": "WHAT THIS torch_npu DOES NOT HAVE, by design: executed, and known to be lacking",
        "limit": "{cause}: {count:,} cases: {reason} ({issue})",
        "waived": "WHAT WAS WAIVED: known defects that were executed",
        "waiver": "{case}: {reason} ({issue}), until {expires}",
        "disputed": "WHAT IS DISPUTED: nobody has found out yet whether the device or the case is wrong",
        "fallbacks": "WHAT THE CPU COMPUTED beyond that, with right numbers",
        "nothing": "nothing",
        "unmeasured": "nothing measured",
        "holds": "HOW LONG IT HOLDS",
        "until": "until {expires}, or until {newer} releases of CANN are newer, or until it is revoked",
        "issuer": "WHO SAYS SO",
        "issued": "issued on {issued} by {issuer}, with the key {key}",
        "stamped": "the log was time-stamped at {time} by {authority}",
        "confirms": "It confirms the certificate {id} by {issuer}, with the key {key}:",
        "both": "both issuers ran the suites, each on a machine of its own, and their runs agree case by case.",
        "independent": "This certificate is independent of Huawei. Huawei has neither issued nor reviewed it.",
        "rests": "It rests on the run log, which is the issuer's own account of one run on one machine:",
        "warranty": "if the log is true, the run earns the tier. It is no warranty.",
    },
    "zh": {
        "title": "符合性证书，等级：{tier}",
        "number": "编号 {id}",
        "by": "依据运行 {id}（结束于 {finished}），pytest-ascend {release}：",
        "tested": "测试对象",
        "unknown": "未知",
        "level": "级别",
        "challenge": "质询数",
        "no-challenge": "运行前未给出",
        "not-covered": "未测试，不在认证范围内",
        "not-again": "'verify --rerun' 无法重新执行的用例：{suite} {count} 个",
        "limits": "该版本 torch_npu 按设计不具备的能力：已执行，确认缺失",
        "limit": "{cause}：{count:,} 个用例：{reason}（{issue}）",
        "waived": "已豁免：执行过的已知缺陷",
        "waiver": "{case}：{reason}（{issue}），有效期至 {expires}",
        "disputed": "有争议：尚不清楚是设备有误还是用例有误",
        "fallbacks": "除此之外由 CPU 计算、数值正确的用例",
        "nothing": "无",
        "unmeasured": "未测量",
        "holds": "有效期",
        "until": "至 {expires}；若 CANN 又发布 {newer} 个新版本，或证书被吊销，则提前失效",
        "issuer": "签发者",
        "issued": "{issuer} 于 {issued} 签发，密钥 {key}",
        "stamped": "运行日志由 {authority} 于 {time} 加盖时间戳",
        "confirms": "本证书确认 {issuer} 签发的证书 {id}，密钥 {key}：",
        "both": "双方各自在自己的机器上运行了测试套件，逐个用例结果一致。",
        "independent": "本证书独立于华为，华为既未签发也未审核。",
        "rests": "证书以运行日志为依据；日志是签发者对一台机器上一次运行的自述：",
        "warranty": "若日志属实，则该次运行达到此等级。本证书不构成任何担保。",
    },
}
#: The meaning of each tier in the statement's words -> in Chinese.
_MEANS_ZH = {
    TIERS[
        "operators"
    ].means: "该版本 torch_npu 具备的算子，在套件覆盖的所有 dtype 和性质上，计算结果符合 PyTorch 的承诺；"
    "按设计不具备的能力逐一列出编号和名称",
    TIERS["models"].means: "模型的推理和训练结果与 PyTorch 一致，误差在 float64 参考允许的范围内",
    TIERS["graphs"].means: "捕获的图在每次重放时，换用其他输入、长度和填充，结果与 eager 调用逐位一致",
    TIERS[
        "inference"
    ].means: "语言模型以分块、逐 token、填充、打包、分页缓存加捕获图等方式推理，每层结果与各文本单独以 float64 "
    "计算的一致；生成的 token 仅在所列差距之内不同",
    TIERS["performance"].means: "性能基准在无人共用的设备上完整运行，测量值如文中所列",
    SAMPLE.means: "不证明任何 NPU：运行于模拟设备，本证书仅为样例",
    TIERS["distributed"].means: "多卡集合通信和并行训练的结果与单进程一致",
}
_OUTSIDE_ZH = {
    **{
        f"the tier {tier.name}: that {tier.means}": f"等级 {tier.name}：{_MEANS_ZH[tier.means]}"
        for tier in TIERS.values()
    },
    **{f"cases of higher levels than {level}": f"高于 {level} 级别的用例" for level in ("smoke", "standard")},
    "more than one device at a time, and communication between devices": "同时使用多个设备，以及设备间通信",
    "any other version of any part": "任何部件的其他版本",
}
_TRANSLATED = {"en": {}, "zh": {**_MEANS_ZH, **_OUTSIDE_ZH, **_NAMES_ZH}}
LANGUAGES = tuple(TEXTS)


def words(claims: Mapping[str, Any], language: str = "en") -> str:
    """Return the text of ``certificate.txt``, or of ``certificate.zh.txt`` in the language "zh"."""
    return "\n".join(one_line(line) for line in _lines(claims, language)) + "\n"


def _lines(claims: Mapping[str, Any], language: str) -> Iterator[str]:
    texts, translated = TEXTS[language], _TRANSLATED[language]
    nothing = [f"  {texts['nothing']}"]

    def heading(key: str) -> tuple[str, str]:
        return "", texts[key]

    yield texts["title"].format(tier=claims["tier"])
    yield texts["number"].format(id=claims["id"])
    yield ""
    run = claims["run"]
    yield texts["by"].format(id=run["id"], finished=run["finished"], release=claims["release"])
    yield from (f"  {translated.get(each, each)}" for each in claims["means"])
    yield from heading("tested")
    for part, name in NAMES.items():
        yield f"  {translated.get(part, name)}: {claims['stack'].get(part) or texts['unknown']}"
    yield f"  {texts['level']}: {run['level']}"
    yield f"  {texts['challenge']}: {run.get('challenge') or texts['no-challenge']}"
    for suite, counts in claims["counts"].items():
        yield f"  {suite}: {', '.join(f'{count} {name}' for name, count in counts.items())}"
    yield from _figures(claims["figures"], texts["unmeasured"])
    yield from heading("not-covered")
    yield from (f"  {translated.get(each, each)}" for each in claims["not_covered"])
    for suite, count in claims.get("not_again", {}).items():
        yield f"  {texts['not-again'].format(suite=suite, count=count)}"
    yield from heading("limits")
    for each in claims["limits"]:
        yield f"  {texts['limit'].format(count=len(each['cases']), **{key: each[key] for key in _OF_LIMIT})}"
        yield f"    {', '.join(sorted({case.split('/')[1] for case in each['cases']}))}"
    yield from [] if claims["limits"] else nothing
    yield from heading("waived")
    yield from (f"  {texts['waiver'].format(**{key: each[key] for key in _OF_WAIVER})}" for each in claims["waived"])
    yield from [] if claims["waived"] else nothing
    yield from heading("disputed")
    yield from (f"  {each}" for each in claims["disputed"] or [texts["nothing"]])
    yield from heading("fallbacks")
    yield from (f"  {each}" for each in claims["fallbacks"] or [texts["nothing"]])
    yield from heading("holds")
    yield f"  {texts['until'].format(expires=claims['expires'], newer=NEWER_CANN)}"
    yield from heading("issuer")
    yield f"  {texts['issued'].format(issued=claims['issued'], issuer=claims['issuer'], key=claims['key'])}"
    for each in claims.get("time_stamps", ()):
        yield f"  {texts['stamped'].format(time=each['time'], authority=each['authority'])}"
    if confirms := claims.get("confirms"):
        yield f"  {texts['confirms'].format(**{key: confirms[key] for key in ('id', 'issuer', 'key')})}"
        yield f"  {texts['both']}"
    yield from (f"  {texts[key]}" for key in ("independent", "rests", "warranty"))


_OF_LIMIT = ("cause", "reason", "issue")
_OF_WAIVER = ("case", "reason", "issue", "expires")


def _figures(figures: Mapping[str, Mapping[str, float]], nothing: str) -> Iterator[str]:
    """Yield the measurements, with their units."""
    for case, measured in figures.items():
        yield f"  {case}: {', '.join(f'{name} {value:.6g}' for name, value in measured.items()) or nothing}"


#: The number of names that a reason lists.
_NAMED = 3


def counted_cases(count: int) -> str:
    """Return a number of cases: "1 case", "2,000 cases"."""
    return "1 case" if count == 1 else f"{count:,} cases"


def named(names: Sequence[str]) -> str:
    """Return the first names, and the number of others."""
    rest = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{rest}"
