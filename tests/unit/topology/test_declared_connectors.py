"""Connectors: what an operation renders, and what inserted data can never change."""

import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import Place, Refused
from topology.connectors import ConnectorSpec, SecretUrl, check_base_url
from topology.publication import read_files

PAYMENTS = """\
- id: con_payments
  type: http
  baseUrl: "http://127.0.0.1:9000/api/"
  operations:
    authorize:
      method: POST
      path: "/authorizations/{{ input.id }}"
      headers: { X-Trace: "t-{{ run.id }}" }
      query: { tag: "{{ input.tags }}", none: "{{ input.none }}", page: 2, note: "a {{ input.id }}" }
      body: "{{ input }}"
    void: { method: DELETE, path: "/authorizations/{{ input.id }}/{{ input.part }}", timeout: 3s }
  auth: { kind: header, secretRef: sec_pay, header: X-Api-Key }
"""


def connector(source: str = PAYMENTS) -> ConnectorSpec:
    return read_files({"c.yaml": source}).connectors[0]


def refusal(source: str) -> Refused:
    with pytest.raises(Refused) as caught:
        connector(source)
    return caught.value


def scope(**values: object) -> dict[str, object]:
    return {"input": {"id": "inv_1", "tags": [], "none": None, **values}, "run": {"id": "run_1"}}


def test_an_operation_renders_a_request() -> None:
    request = connector().operations["authorize"].render(scope(id="a/b ?é#", tags=["x y", "ü&=", 3]))
    assert request.method == "POST"
    assert request.target == (
        "/authorizations/a%2Fb%20%3F%C3%A9%23?tag=x%20y&tag=%C3%BC%26%3D&tag=3&page=2&note=a%20a%2Fb%20%3F%C3%A9%23"
    )
    assert request.headers == {"X-Trace": "t-run_1"}
    assert request.has_body
    assert request.body["id"] == "a/b ?é#"


def test_defaults_are_the_guides() -> None:
    spec = connector()
    assert spec.retry_on == [408, 429, 500, 502, 503, 504]
    assert (spec.timeout_of("authorize"), spec.timeout_of("void")) == (20.0, 3.0)
    assert spec.base_url == "http://127.0.0.1:9000/api"


def test_a_base_url_may_come_from_a_secret() -> None:
    spec = connector(PAYMENTS.replace('"http://127.0.0.1:9000/api/"', "{ secretRef: sec_url }"))
    assert isinstance(spec.base_url, SecretUrl)
    assert spec.base_url.secret_ref == "sec_url"


@pytest.mark.parametrize("part", ["", ".", "..", None, "\ud800", ["\ud800"]])
def test_a_value_cannot_turn_a_path_into_another(part: object) -> None:
    with pytest.raises(Refused) as caught:
        connector().operations["void"].render(scope(part=part))
    assert caught.value.code == "E_EXPRESSION"


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(lambda text: text not in (".", "..")))
def test_a_value_stays_one_segment(text: str) -> None:
    request = connector().operations["void"].render(scope(part=text))
    assert request.target.count("/") == 3
    assert request.target.isascii()
    assert not set(request.target) & set("?# \r\n\0")


@pytest.mark.parametrize("text", ["a\r\nX-Evil: 1", "a\nb", "a\0b", "a\x7fb"])
def test_a_value_cannot_break_a_header(text: str) -> None:
    with pytest.raises(Refused, match="control characters"):
        connector().operations["authorize"].render({**scope(), "run": {"id": text}})


@pytest.mark.parametrize(
    ("before", "after", "line", "says"),
    [
        ("method: POST", "method: FETCH", 6, "'POST'"),
        ('path: "/authorizations/{{ input.id }}"\n', 'path: "authorizations"\n', 7, "one `/`"),
        ('path: "/authorizations/{{ input.id }}"\n', 'path: "//evil.example/x"\n', 7, "one `/`"),
        ('path: "/authorizations/{{ input.id }}"\n', 'path: "/a?b=c"\n', 7, "`query`"),
        ('path: "/authorizations/{{ input.id }}"\n', 'path: "/a/%2e%2E/b"\n', 7, "segments"),
        ('path: "/authorizations/{{ input.id }}"\n', 'path: "/a b"\n', 7, "characters of URLs"),
        ("X-Trace:", "Authorization:", 8, "`secretRef`"),
        ("X-Trace:", "Idempotency-Key:", 8, "set by the platform"),
        ("X-Trace:", "'X Trace':", 8, "not a header's name"),
        ('X-Trace: "t-{{ run.id }}"', 'X-Trace: "a", x-trace: "b"', 8, "stands twice"),
        ('X-Trace: "t-{{ run.id }}"', 'X-Trace: "a\\nb"', 8, "control characters"),
        ('X-Trace: "t-{{ run.id }}"', "X-Trace: 7", 8, "must be text"),
        ('body: "{{ input }}"', "body: [{ a: '{{ inputs }}' }]", 10, "undeclared"),
        ('"http://127.0.0.1:9000/api/"', '"ftp://x"', 3, "looks like"),
        ('"http://127.0.0.1:9000/api/"', '"http://user:pw@x"', 3, "no credentials"),
        ('"http://127.0.0.1:9000/api/"', '"http://x/?a=1"', 3, "no query"),
        ('"http://127.0.0.1:9000/api/"', '"http://{{ input.host }}/"', 3, "no templates"),
        ('"http://127.0.0.1:9000/api/"', '"http://x:99999/"', 3, "cannot be read as a URL"),
        ('"http://127.0.0.1:9000/api/"', "{ secretRef: x }", 3, "`sec_partner`"),
        ("kind: header", "kind: bearer", 12, "`header` names"),
        ("secretRef: sec_pay, ", "", 12, "`secretRef` is missing"),
        ("kind: header", "kind: digest", 12, "'bearer'"),
        ("  auth:", "  retryOn: [200]\n  auth:", 12, "400"),
        ("  auth:", "  retryOn: 503\n  auth:", 12, "a list"),
        ("authorize:", "Authorize:", 5, "not an operation's name"),
        ("void:", f"{'v' * 64}:", 11, "not an operation's name"),
    ],
)
def test_a_mistake_is_refused_in_its_line(before: str, after: str, line: int, says: str) -> None:
    assert before in PAYMENTS
    error = refusal(PAYMENTS.replace(before, after, 1))
    assert error.place is not None
    assert (error.place.file, error.place.line) == ("c.yaml", line), str(error)
    assert says in error.message


def test_a_template_deep_in_a_body_has_its_place() -> None:
    source = textwrap.dedent("""\
        - id: con_a
          type: http
          baseUrl: http://x
          operations:
            x:
              path: /
              body:
                deep: [{ k: "ab {{ foo }}" }]
        """)
    assert refusal(source).place == Place("c.yaml", 8, 28)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_some_methods_carry_no_body(method: str) -> None:
    assert "carries no body" in refusal(PAYMENTS.replace("method: POST", f"method: {method}")).message


@pytest.mark.parametrize("url", ["", "x", "http://", "http://a b", "http://[::1", "http://x\\y", "javascript:alert(1)"])
def test_a_base_url_is_a_plain_address(url: str) -> None:
    with pytest.raises(ValueError, match="URL"):
        check_base_url(url)
