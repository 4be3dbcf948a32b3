// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Runs a TorchScript module on tensors without data and records the operators that it applies.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/libtorch/detail/jit_nodes.hpp>
#include <heddle/libtorch/detail/observed_calls.hpp>
#include <heddle/libtorch/detail/tensor_values.hpp>
#include <heddle/program/aten_calls.hpp>

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace heddle::libtorch::detail {

/// Interprets graphs. Numbers, lists, branches and loops are computed; operators on tensors are evaluated for their
/// shapes and, except in a trial run, recorded in a program.
class graph_tracer {
public:
    graph_tracer(torch::jit::Module const& module, call_recorder& recorder)
        : sources_(module), values_(recorder), recorder_(recorder) {
        for (auto const& m : module.named_modules()) paths_.emplace(m.value._ivalue().get(), m.name);
    }

    /// Returns the stand-in of an input.
    at::Tensor input(std::string const& name, at::Tensor const& example) {
        at::Tensor made = at::empty(example.sizes(), example.options().device(at::kMeta).requires_grad(false));
        values_.define(made, recorder_.builder.input(name, shape_of(made), element_type_of(made, name)));
        return made;
    }

    /// Calls a method of the module that is the first argument.
    c10::IValue call_method(std::string const& method, std::vector<c10::IValue> arguments) {
        auto const object = arguments.front().toObject();
        auto const path = paths_.find(object.get());
        auto const outer = std::exchange(path_, path == paths_.end() ? path_ : path->second);
        bool const is_forward = method.starts_with("forward"); // a trace numbers the second and later calls
        auto const type =
            object->type()->name() && is_forward && !trial_ ? object->type()->name()->name() : std::string{};
        auto& called = object->type()->getMethod(method);
        auto result = type == "MultiheadAttention" ? call_attention(object, called, std::move(arguments))
                      : type == "StochasticDepth"  ? call_stochastic_depth(called, std::move(arguments))
                                                   : call(called, std::move(arguments));
        path_ = outer;
        return result;
    }

    [[nodiscard]] tensor_id id(at::Tensor const& t) { return values_.id(t, place()); }
    [[nodiscard]] bool is_traced(at::Tensor const& t) const { return values_.is_traced(t); }

    /// Adds an operator whose results have the shapes of `results`, or of the first of them.
    std::vector<tensor_id> record(functional_call call, std::vector<at::Tensor> const& results) {
        traced_call traced;
        traced.name = unique_name(call.target);
        traced.target = std::move(call.target);
        for (auto const& name : call.keyword_order) collect_tensors(call.keywords.at(name), traced.operands);
        traced.keywords = std::move(call.keywords);
        auto const count = std::min(call.result_count.value_or(results.size()), results.size());
        for (std::size_t r = 0; r < count; ++r)
            traced.results.push_back({shape_of(results[r]), element_type_of(results[r], traced.name)});
        return recorder_.add(traced);
    }

private:
    static constexpr char const* stochastic_depth_target = "torchvision.ops.stochastic_depth.stochastic_depth";
    using environment = std::unordered_map<torch::jit::Value const*, c10::IValue>;

    [[nodiscard]] std::string place() const { return path_.empty() ? "forward" : "module '" + path_ + "'"; }

    [[nodiscard]] std::string unique_name(std::string_view target) {
        std::string name = (path_.empty() ? "" : path_ + ".") + std::string(target.substr(target.rfind('.') + 1));
        if (auto const again = names_[name]++; again > 0) name += "_" + std::to_string(again);
        return name;
    }

    // ---- control

    c10::IValue call(torch::jit::Function& function, std::vector<c10::IValue> arguments) {
        auto const graph = torch::jit::toGraphFunction(function).graph();
        environment values;
        for (std::size_t i = 0; i < graph->inputs().size(); ++i)
            values.emplace(graph->inputs()[i],
                           i < arguments.size() ? std::move(arguments[i]) : default_of(function, i));
        auto results = run(*graph->block(), values);
        if (results.size() != 1)
            throw input_error(place(), "returns " + std::to_string(results.size()) + " values, expected one");
        return std::move(results.front());
    }

    [[nodiscard]] c10::IValue default_of(torch::jit::Function const& function, std::size_t argument) const {
        auto const& value = function.getSchema().arguments().at(argument).default_value();
        if (!value)
            throw input_error(place(), "is called without its argument '" +
                                           function.getSchema().arguments()[argument].name() + "'");
        return *value;
    }

    std::vector<c10::IValue> run(torch::jit::Block const& block, environment& values) {
        for (auto const* node : block.nodes()) run(*node, values);
        std::vector<c10::IValue> results;
        for (auto const* output : block.outputs()) results.push_back(values.at(output));
        return results;
    }

    void run(torch::jit::Node const& node, environment& values) {
        using namespace c10;
        std::vector<IValue> arguments;
        if (node.kind() != prim::CallFunction)
            for (auto const* input : node.inputs()) arguments.push_back(values.at(input));
        auto const set = [&](std::vector<IValue> results) {
            for (std::size_t i = 0; i < node.outputs().size(); ++i)
                values.insert_or_assign(node.outputs()[i], std::move(results.at(i)));
        };
        if (node.kind() == prim::Constant) set({constant_of(node)});
        else if (node.kind() == prim::Uninitialized) set({IValue()});
        else if (node.kind() == prim::GetAttr) set({attribute(arguments[0].toObject(), node.s(attr::name))});
        else if (node.kind() == prim::SetAttr)
            attributes_.insert_or_assign({arguments[0].toObject().get(), node.s(attr::name)}, arguments[1]);
        else if (node.kind() == prim::CallMethod) set({call_method(node.s(attr::name), std::move(arguments))});
        else if (node.kind() == prim::CallFunction) set({call_function(node, values)});
        else if (node.kind() == prim::If) set(run(*node.blocks()[arguments[0].toBool() ? 0 : 1], values));
        else if (node.kind() == prim::Loop) set(loop(node, std::move(arguments), values));
        else if (node.kind() == prim::TupleConstruct) set({ivalue::Tuple::create(std::move(arguments))});
        else if (node.kind() == prim::TupleUnpack) set(arguments[0].toTupleRef().elements().vec());
        else if (node.kind() == prim::ListConstruct) set({list_of(node, arguments)});
        else if (node.kind() == prim::ListUnpack) set(items_of(arguments[0].toList()));
        else if (node.kind() == prim::RaiseException)
            throw input_error(place(), "raises an exception for these inputs");
        else set(apply(node, std::move(arguments)));
    }

    /// Returns an attribute as the run has it: what it was set to, the stand-in of a source, or a plain value.
    c10::IValue attribute(c10::intrusive_ptr<c10::ivalue::Object> const& object, std::string const& name) {
        if (auto const set = attributes_.find({object.get(), name}); set != attributes_.end()) return set->second;
        auto const value = object->getAttr(name);
        if (tensors_in({value}).empty()) return value;
        auto const path = paths_.find(object.get());
        std::string const full_name = (path == paths_.end() || path->second.empty() ? "" : path->second + ".") + name;
        std::size_t item = 0; // of a list, such as the weights that a recurrent layer keeps beside its parameters
        auto const held = with_each_tensor(value, [&](at::Tensor const& t) {
            return values_.stand_in(
                sources_.find(t, value.isTensor() ? full_name : full_name + "." + std::to_string(item++)));
        });
        if (!value.isTensor()) attributes_.insert_or_assign({object.get(), name}, held);
        return held;
    }

    std::vector<c10::IValue> loop(torch::jit::Node const& node, std::vector<c10::IValue> carried, environment& values) {
        auto const most = carried[0].toInt();
        bool goes_on = carried[1].toBool();
        carried.erase(carried.begin(), carried.begin() + 2);
        auto const& body = *node.blocks()[0];
        for (std::int64_t i = 0; i < most && goes_on; ++i) {
            values.insert_or_assign(body.inputs()[0], c10::IValue(i));
            for (std::size_t k = 0; k < carried.size(); ++k) values.insert_or_assign(body.inputs()[k + 1], carried[k]);
            carried = run(body, values);
            goes_on = carried[0].toBool();
            carried.erase(carried.begin());
        }
        return carried;
    }

    /// Calls a function of the module's own; what the catalogue knows as a whole is one operator.
    c10::IValue call_function(torch::jit::Node const& node, environment& values) {
        std::vector<c10::IValue> arguments;
        for (auto const* input : node.inputs().slice(1)) arguments.push_back(values.at(input));
        auto& function = *node.input(0)->type()->expectRef<c10::FunctionType>().function();
        char const* const target = function.name() == "multi_head_attention_forward"
                                       ? "torch.nn.functional.multi_head_attention_forward"
                                   : function.name() == "embedding_bag"    ? "torch.nn.functional.embedding_bag"
                                   : function.name() == "grouped_mm"       ? "torch.nn.functional.grouped_mm"
                                   : function.name() == "stochastic_depth" ? stochastic_depth_target
                                                                           : nullptr;
        if (trial_ || !target) return call(function, std::move(arguments));
        functional_call whole{target};
        auto const& schema = function.getSchema().arguments();
        for (std::size_t i = 0; i < arguments.size(); ++i)
            whole.add(schema[i].name(), to_literal(arguments[i]).value_or(literal{}));
        auto result = try_out([&] { return call(function, std::move(arguments)); }).second;
        hold(record(std::move(whole), tensors_in({result})), tensors_in({result}));
        return result;
    }

    // ---- operators

    void hold(std::vector<tensor_id> const& ids, std::vector<at::Tensor> const& tensors) {
        for (std::size_t i = 0; i < std::min(ids.size(), tensors.size()); ++i) values_.define(tensors[i], ids[i]);
    }

    std::vector<c10::IValue> apply(torch::jit::Node const& node, std::vector<c10::IValue> arguments) {
        auto const fail = [&](std::string const& problem) {
            throw input_error(place(), std::string(node.kind().toQualString()) + " " + problem);
        };
        for (auto& a : arguments) a = with_each_tensor(a, [&](auto const& t) { return values_.current(t, place()); });
        if (makes_constant(node))
            arguments[0] = at::empty({}, arguments[0].toTensor().options().device(at::kCPU))
                               .expand(arguments[0].toTensor().sizes());
        bool const traced = algorithm::any_of(tensors_in(arguments), [](auto const& t) { return t.is_meta(); });
        if (traced && needs_contents(node))
            fail("needs the contents of a tensor (data-dependent control flow or shape)");
        auto const stand_in = [&](at::Tensor const& t) {
            return t.is_meta() || t.dim() == 0 ? t : trial_ ? without_data(t) : values_.stand_in_for_constant(t);
        };
        if (traced)
            for (auto& a : arguments) a = with_each_tensor(a, stand_in);
        auto results = arguments;
        try {
            evaluate(node, results);
        } catch (c10::Error const& e) { fail("cannot be evaluated: " + first_line(e.what_without_backtrace())); }
        if (trial_) trial_->push_back({node.kind().toUnqualString(), arguments, results});
        else if (traced) record(node, arguments, results);
        return results;
    }

    void record(torch::jit::Node const& node, std::vector<c10::IValue> const& arguments,
                std::vector<c10::IValue>& results) {
        std::string_view const qualified = node.kind().toQualString();
        auto const made = tensors_in(results);
        if (made.empty()) return;
        auto const written = written_argument(node, arguments);
        auto const given = tensors_in(arguments);
        at::Tensor const first = given.front();
        if (written && qualified == "aten::copy_" && made[0].sizes() == arguments[1].toTensor().sizes() &&
            values_.is_traced(arguments[1].toTensor()))
            return values_.redefine(*written, id(arguments[1].toTensor()));
        if (written && makes_same(node) && (arguments.size() == 1 || !arguments[1].isTensor())) {
            at::Tensor const number = at::zeros({}, written->options().device(at::kCPU));
            return values_.redefine(*written, id(values_.stand_in_for_constant(number.expand(written->sizes()))));
        }
        bool const takes_all =
            qualified == "aten::slice" && made[0].sizes() == first.sizes() && made[0].strides() == first.strides();
        if (takes_all || qualified == "aten::contiguous") return values_.define(made[0], id(first));
        // An item of a list or tuple is there already.
        auto const is_given = [&](auto const& t) {
            return algorithm::any_of(given, [&](auto const& g) { return t.is_same(g); });
        };
        if (!written && algorithm::all_of(made, is_given)) return;
        std::vector<aten_argument> named;
        for (std::size_t i = 0; i < arguments.size(); ++i)
            if (auto value = to_literal(arguments[i]))
                named.push_back({node.schema().arguments()[i].name(), std::move(*value)});
        auto const ids =
            record(functional_call_of(qualified, std::move(named), static_cast<std::size_t>(first.dim())), made);
        if (!written) return hold(ids, made);
        values_.redefine(*written, ids.front());
        results = {*written};
    }

    /// Returns nothing for what is no part of a model.
    std::optional<literal> to_literal(c10::IValue const& value) {
        if (value.isNone()) return literal{};
        if (value.isBool()) return literal{value.toBool()};
        if (value.isInt()) return literal{value.toInt()};
        if (value.isDouble()) return literal{value.toDouble()};
        if (value.isString()) return literal{value.toStringRef()};
        if (value.isTensor()) return tensor_literal(value.toTensor());
        if (!value.isList() && !value.isTuple()) return {};
        literal::list items;
        for (auto const& item : value.isList() ? items_of(value.toList()) : value.toTupleRef().elements().vec())
            items.push_back(to_literal(item).value_or(literal{}));
        return literal{std::move(items)};
    }
    literal tensor_literal(at::Tensor const& t) {
        if (!t.defined()) return {};
        if (values_.is_traced(t)) return {literal::tensor{id(t)}};
        if (t.dim() > 0) return {literal::tensor{id(values_.stand_in_for_constant(t))}};
        if (t.scalar_type() == at::kBool) return {t.item<bool>()};
        return c10::isIntegralType(t.scalar_type(), false) ? literal{t.item<std::int64_t>()}
                                                           : literal{t.item<double>()};
    }

    // ---- functions that are known as a whole, by what they apply

    /// Returns what a function applies and returns, without recording it.
    template <class Function>
    std::pair<std::vector<observed_call>, c10::IValue> try_out(Function&& function) {
        std::vector<observed_call> calls;
        trial_ = &calls;
        auto result = function();
        trial_ = nullptr;
        return {std::move(calls), std::move(result)};
    }

    /// Handles torchvision's module, whose mask is drawn by the place in the whole tensor.
    c10::IValue call_stochastic_depth(torch::jit::Function& forward, std::vector<c10::IValue> arguments) {
        if (arguments.size() != 2 || !arguments[1].isTensor())
            return call(forward, std::move(arguments)); // one that drops nothing may take nothing
        auto const x = arguments[1].toTensor();
        auto [calls, result] = try_out([&] { return call(forward, arguments); });
        auto const drop = find_stochastic_depth(calls, x);
        if (!drop) return call(forward, std::move(arguments));
        functional_call whole{stochastic_depth_target};
        whole.add("input", tensor_literal(x));
        whole.add("p", {drop->probability});
        whole.add("mode", {std::string(drop->mode)});
        whole.add("training", {true});
        hold(record(std::move(whole), tensors_in({result})), tensors_in({result}));
        return result;
    }

    /// Records self-attention of PyTorch's module as the one operator that it is in the catalogue, and anything else
    /// operator by operator.
    c10::IValue call_attention(c10::intrusive_ptr<c10::ivalue::Object> const& object, torch::jit::Function& forward,
                               std::vector<c10::IValue> arguments) {
        bool const plain = arguments.size() == 2 && arguments[1].isTensor() && arguments[1].toTensor().dim() == 3 &&
                           object->type()->hasAttribute("in_proj_weight") && object->type()->hasAttribute("out_proj");
        if (!plain) return call(forward, std::move(arguments));
        auto const [calls, result] = try_out([&] { return call(forward, arguments); });
        auto const found = find_attention(calls);
        if (!found || !result.isTensor()) return call(forward, std::move(arguments));

        auto const& query = found->query;
        auto const transposed = [&](at::Tensor const& from, at::Tensor const& to) {
            functional_call turn{"transpose"};
            turn.add("input", tensor_literal(from));
            turn.add("dim0", {std::int64_t{1}});
            turn.add("dim1", {std::int64_t{0}});
            hold(record(std::move(turn), {to}), {to});
        };
        auto const x = arguments[1].toTensor();
        bool const batch_first = !query.is_same(x);
        if (batch_first) transposed(x, query);
        functional_call attention{"torch.nn.functional.multi_head_attention_forward"};
        for (char const* name : {"query", "key", "value"}) attention.add(name, tensor_literal(query));
        attention.add("num_heads", {found->heads});
        auto const out_proj = object->getAttr("out_proj").toObject();
        auto const add = [&](char const* name, c10::intrusive_ptr<c10::ivalue::Object> const& owner,
                             char const* attribute_name) {
            if (owner->type()->hasAttribute(attribute_name))
                attention.add(name, to_literal(attribute(owner, attribute_name)).value_or(literal{}));
        };
        add("in_proj_weight", object, "in_proj_weight");
        add("in_proj_bias", object, "in_proj_bias");
        attention.add("dropout_p", {found->dropout});
        add("out_proj_weight", out_proj, "weight");
        add("out_proj_bias", out_proj, "bias");
        attention.add("training", {found->training});
        attention.add("need_weights", {false});
        at::Tensor const inner = at::empty_like(query);
        hold(record(std::move(attention), {inner}), {inner});
        if (!batch_first) return inner;
        at::Tensor const outer = without_data(result.toTensor());
        transposed(inner, outer);
        return outer;
    }

    module_sources sources_;
    tensor_values values_;
    call_recorder& recorder_;
    std::map<c10::ivalue::Object const*, std::string> paths_;
    std::map<std::pair<c10::ivalue::Object const*, std::string>, c10::IValue> attributes_;
    std::map<std::string, std::size_t> names_;
    std::string path_;
    std::vector<observed_call>* trial_ = nullptr;
};

} // namespace heddle::libtorch::detail
