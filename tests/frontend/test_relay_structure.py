"""Structure of Relay models: functions that call each other, let, tuples, branches, names, types, metadata."""

from __future__ import annotations

import time

import numpy as np
import pytest
from relay_cases import outputs
from relay_files import JsonWriter

from tvm_tiling.errors import ModelFormatError, UnsupportedOperator
from tvm_tiling.frontend import load_model
from tvm_tiling.frontend.node_names import names_in, numbers_of
from tvm_tiling.frontend.relay.import_relay import read_relay
from tvm_tiling.frontend.relay.parser import parse_program

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 3)).astype("float32")
T = "Tensor[(2, 3), float32]"


def results(text: str, *inputs: np.ndarray, params=None) -> list[np.ndarray]:
    model = load_model(text.encode(), params=params)
    return outputs(model.module, inputs)


def test_functions_of_the_module_call_each_other():
    text = f"""def @scale(%v: {T}, Primitive=1, hash="abc") -> {T} {{ multiply(%v, 3f) }}
def @twice(%v: {T}) -> {T} {{ %0 = @scale(%v); @scale(%0) }}
def @main(%x: {T}) {{ (@twice(%x), @scale(%x)) }}"""
    found = results(text, X)
    np.testing.assert_allclose(found[0], X * 9, rtol=1e-6)
    np.testing.assert_allclose(found[1], X * 3, rtol=1e-6)


def test_local_functions_see_what_is_around_them_and_may_be_passed_on():
    text = f"""def @apply(%f: fn ({T}) -> {T}, %v: {T}) {{ %f(%v) }}
def @main(%x: {T}, %y: {T}) {{
  let %plus = fn (%v: {T}) -> {T} {{ add(%v, %y) }};
  %0 = fn (%p: ({T}, {T}), Composite="pair", PartitionedFromPattern="x_") {{ %1 = %p.0; subtract(%1, %p.1) }};
  let %z: {T} = @apply(%plus, %x);
  %2 = (%z, %y);
  %0(%2)
}}"""
    np.testing.assert_allclose(results(text, X, X * 2)[0], X, rtol=1e-6)


def test_results_in_tuples_are_flat():
    text = f"def @main(%x: {T}) {{ (%x, (negative(%x), ()), ((abs(%x),),)) }}"
    model = load_model(text.encode())
    assert model.output_names == ("output_0", "output_1", "output_2")


def test_choices():
    text = f"""def @main(%c: bool, %x: {T}) {{
  if (%c) {{ %0 = negative(%x); (%0, %x) }} else {{ (%x, abs(%x)) }}
}}"""
    for condition in (True, False):
        first, second = results(text, np.array(condition), X)
        np.testing.assert_array_equal(first, -X if condition else X)
        np.testing.assert_array_equal(second, X if condition else np.abs(X))


def test_names_with_dots_and_other_marks():
    text = f"""def @main(%net.2.weight: {T}, %net: ({T}, {T}), %a/b:0: {T}) {{ %net.2.weight }}"""
    with pytest.raises(ModelFormatError, match="input 'net' has the type"):
        load_model(text.encode())
    text = f"""def @main(%net.2.weight: {T}, %a/b:0: {T}, %x-1: {T}) {{
  let %net = (%net.2.weight, (%a/b:0, %x-1));
  %7 = (add(%net.0, %net.1.1), %net.1.0) /* a comment */;
  // another
  subtract(%7.0, %7.1)
}}"""
    np.testing.assert_allclose(results(text, X, X * 2, X * 3)[0], X * 2, rtol=1e-5)
    with pytest.raises(ModelFormatError, match=r"line 1: %net.3.weight is not declared"):
        load_model(f"def @main(%net.2.weight: {T}) {{ %net.3.weight }}".encode())


def test_numbers():
    text = "def @main() { (1f, 2i64, True, 3f16, 1e-05f, 4, -2.5f64, 7u8, inff, -3 /* ty=int8 */, 0.25) }"
    model = parse_program(text, lambda kind, number: None, None)
    fields = model.functions["main"].body.fields
    kinds = "float32 int64 bool float16 float32 int32 float64 uint8 float32 int8 float32"
    assert " ".join(field.type.dtype for field in fields) == kinds
    assert [float(field.value) for field in fields[:3]] == [1, 2, 1] and np.isposinf(fields[8].value)
    for bad in ("300u8", "1.5e99i32", "nan /* ty=int32 */", "-1 /* ty=uint8 */"):
        with pytest.raises(ModelFormatError, match=r"line 1: .* is not a number of type u?int"):
            parse_program(f"def @main() {{ {bad} }}", lambda kind, number: None, None)


def test_stated_types_are_checked():
    for text, said in (
        (f"def @main(%x: {T}) {{ abs(%x) /* ty=Tensor[(3, 2), float32] */ }}", "line 1: abs returns"),
        (f"def @main(%x: {T}) {{\n  abs(%x) /* ty=Tensor[(2, 3), float16] */\n}}", "line 2: abs returns"),
        (
            f"def @main(%x: {T}) {{ split(%x, indices_or_sections=3, axis=1) /* ty=({T}, {T}) */ }}",
            "but the file states",
        ),
    ):
        with pytest.raises(ModelFormatError, match=said):
            load_model(text.encode())
    load_model(f"def @main(%x: {T}) {{ abs(%x) /* ty=Tensor[(?, 3), float32] span=a.b:3:4 */ }}".encode())


def test_bare_expressions():
    found = results(f"fn (%x: {T}) {{ nn.relu(%x) }}", X)
    np.testing.assert_array_equal(found[0], np.maximum(X, 0))
    found = results(f"free_var %x: {T};\n%0 = nn.relu(%x);\nnegative(%0)", X)
    np.testing.assert_array_equal(found[0], -np.maximum(X, 0))


def test_metadata_that_is_missing():
    text = "def @main(%x: Tensor[(2), float32]) {\n  add(%x, meta[relay.Constant][3])\n}"
    with pytest.raises(
        ModelFormatError, match=r"line 2: meta\[relay.Constant\]\[3\] is not in the file, which has no meta"
    ):
        load_model(text.encode())
    x = np.array([1, 2], "float32")
    found = results(text, x, params={"meta[relay.Constant][3]": x})
    np.testing.assert_array_equal(found[0], x + x)


@pytest.mark.parametrize(
    "body, said",
    [
        ("match (%x) { Nil => 1f }", "match"),
        ("let %f = fn (%v: float32) { %f(%v) }; %f(%x)", "recursion is not supported"),
        ("@main(%x)", "recursion is not supported"),
        ("@other(%x)", "@other is not defined"),
        ("ref_read(ref(%x))", "ref, *|ref_read"),
        ("%x(%x)", "calls a value that is not a function"),
        ("%x.0", "field 0 does not exist in"),
        ("(%x, %x).2", "field 2 does not exist in"),
        ("fn (%v: float32) { %v }", "returns a function"),
    ],
)
def test_what_is_not_a_graph_of_tensors_is_refused(body, said):
    with pytest.raises((ModelFormatError, UnsupportedOperator), match=said):
        load_model(f"def @main(%x: float32) {{ {body} }}".encode())


def test_unused_definitions_of_types_are_skipped():
    text = f"""type List[A] {{
  Cons(A, List[A]),
  Nil,
}}
extern type Other;
def @main(%x: {T}) {{ abs(%x) }}"""
    assert load_model(text.encode()).input_names == ("x",)


def test_let_and_shared_functions_in_json():
    writer = JsonWriter()
    kind = writer.tensor((2, 3))
    inner, outer, bound = (writer.var(name, kind) for name in ("v", "x", "y"))
    function = writer.function([inner], writer.call(writer.op("add"), [inner, writer.constant(np.float32(1))]))
    value = writer.call(function, [outer])
    body = writer.call(function, [bound])
    let = writer.add("relay.Let", _checked_type_=0, body=body, span=0, value=value, var=bound, virtual_device_=0)
    model = load_model(writer.module({"main": writer.function([outer], let)}))
    np.testing.assert_allclose(outputs(model.module, [X])[0], X + 2, rtol=1e-6)


def test_names_that_an_importer_noted_in_json():
    writer = JsonWriter()
    kind = writer.tensor((2, 3))
    x = writer.var("x", kind)

    def call(name, operand, source, line):
        noted = writer.put({"type_key": "SourceName", "repr_str": source})
        span = writer.add("Span", column=0, end_column=0, end_line=line, line=line, source_name=noted)
        of = {"_checked_type_": kind, "attrs": 0, "type_args": 0, "virtual_device_": 0, "span": span}
        return writer.add("relay.Call", **of, args=writer.array([operand]), op=writer.op(name))

    body = call("exp", call("round", call("abs", x, "first\x1b", 0), "from_string", 3), "second", 0)
    model = load_model(writer.module({"main": writer.function([x], body)}))
    assert list(names_in(model.module)) == ["first\\x1b", "second"]
    calls = [binding for block in model.module["main"].body.blocks for binding in block.bindings][:3]
    assert [numbers_of(binding.var.name) for binding in calls] == [(0,), (), (1,)]


def test_attributes_in_json():
    """JSON states what the text omits: literals and node numbers, by the kind of each attribute."""
    for release in ("0.7.0", "0.14.0"):
        writer = JsonWriter(release)
        x, w = writer.var("x", writer.tensor((1, 5, 6, 2))), writer.var("w", writer.tensor((3, 3, 2, 4)))
        layout = writer.text("NHWC") if release == "0.14.0" else "NHWC"
        attrs = writer.add(
            "relay.attrs.Conv2DAttrs",
            strides=writer.numbers([2, 1]),
            padding=writer.numbers([1, 1, 1, 1]),
            dilation=writer.numbers([1, 1]),
            groups=1,
            channels=0,
            kernel_size=writer.numbers([3, 3]),
            data_layout=layout,
            kernel_layout="HWIO",
            out_layout="",
            out_dtype="",
            auto_scheduler_rewritten_layout="",
        )
        body = writer.call(writer.op("nn.conv2d"), [x, w], attrs, writer.tensor((1, 3, 6, 4)))
        assert load_model(writer.module({"main": writer.function([x, w], body)})).source == "relay"


def test_operators_are_counted_with_what_they_became():
    text = f"def @main(%x: {T}) {{ %0 = copy(%x); %1 = round(%0); nn.relu(nn.relu(%1)) }}"
    found = read_relay(text.encode(), shapes={}, batch=None, params=None, where="counted")
    assert found.mapped == {
        "copy": {"nothing": 1},
        "round": {"a kernel round": 1},
        "nn.relu": {"relax.nn.relu": 2},
    }
    assert found.release is None


def test_two_megabytes_of_text_take_less_than_two_seconds():
    line = (
        "  %{n} = nn.conv2d(%x{p}, %w, padding=[1, 1, 1, 1], channels=8, kernel_size=[3, 3]) "
        "/* ty=Tensor[(1, 8, 16, 16), float32] */;\n"
        "  let %x{n} = nn.relu(%{n}) /* ty=Tensor[(1, 8, 16, 16), float32] */;\n"
    )
    count = 2_000_000 // len(line)
    lines = [line.format(n=n, p=n - 1) for n in range(1, count + 200)]
    head = "def @main(%x0: Tensor[(1, 8, 16, 16), float32], %w: Tensor[(8, 8, 3, 3), float32]) {\n"
    text = head + "".join(lines) + f"  %x{count}\n}}"
    assert len(text) > 2_000_000
    seconds = []
    for _ in range(3):
        start = time.process_time()
        parse_program(text, lambda kind, number: None, None)
        seconds.append(time.process_time() - start)
    assert min(seconds) < 2
