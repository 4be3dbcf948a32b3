// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Turns the nodes of an exported program into sources and calls of a builder, one after the other.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/json/document.hpp>
#include <heddle/json/model.hpp>
#include <heddle/json/names.hpp>
#include <heddle/program/aten_calls.hpp>
#include <heddle/program/call_recorder.hpp>
#include <heddle/pt2/detail/complex_pairs.hpp>
#include <heddle/pt2/detail/schema.hpp>
#include <heddle/pt2/detail/tensor_views.hpp>
#include <heddle/theory/whole_inputs.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace heddle::pt2::detail {

class program_reader {
public:
    program_reader(json::document const& file, rule_table rules) : file_(file), tensors_(recorder_) {
        recorder_.rules = std::move(rules);
    }

    json::model read() {
        check_version();
        element const module = file_.root().at("graph_module");
        element const graph = module.at("graph"), signature = module.at("signature");
        scope values;
        scopes_.push_back(&values);
        meta_.push_back(graph.at("tensor_values"));
        read_sources(signature.at("input_specs"));
        read_nodes(graph.at("nodes"));
        json::model result;
        result.program = with_whole_inputs(finish(signature.at("output_specs")));
        result.name = json::detail::stem_of(file_.name());
        result.missing_rules = recorder_.missing();
        result.warnings = recorder_.warnings();
        result.digest = file_.digest();
        return result;
    }

private:
    /// What a name stands for: a tensor by its number, or why it is none.
    using binding = std::variant<std::uint32_t, std::string>;
    static constexpr std::string_view without_elements = "is a tensor without elements";
    using scope = std::map<std::string, binding, std::less<>>;

    /// An operator's call as the graph states it.
    struct node_call {
        element node;
        std::string name, qualified;
        std::vector<aten_argument> arguments;
        /// Those of the results that are tensors, in order.
        std::vector<std::string> results;
        std::vector<tensor_meta> metas;

        [[nodiscard]] literal const* find(std::string_view argument) const {
            return heddle::detail::value_of(arguments, argument);
        }
        [[nodiscard]] std::optional<std::int64_t> integer(std::string_view argument) const {
            auto const* found = find(argument);
            auto const* number = found ? found->as<std::int64_t>() : nullptr;
            return number ? std::optional(*number) : std::nullopt;
        }
    };

    void check_version() const {
        auto const version = file_.root().at("schema_version").at("major");
        constexpr std::int64_t known = 8;
        if (auto const major = version.integer(0, INT32_MAX); major != known)
            version.fail("is " + std::to_string(major) + ", expected " + std::to_string(known) +
                         ", the schema of torch.export.save from PyTorch 2.6 on");
    }

    // Names.

    /// A place for what a graph binds; a sub-graph sees its own names alone.
    [[nodiscard]] scope& names() { return *scopes_.back(); }
    [[nodiscard]] element const& metas() const { return meta_.back(); }

    void bind(element const& place, std::string const& name, binding b) {
        place.takes(2 * name.size() + 128);
        if (!names().insert_or_assign(name, std::move(b)).second) place.fail("defines '" + name + "' again");
    }
    /// The number of the tensor of a name. *Throws* `input_error` if it is none.
    [[nodiscard]] std::uint32_t number_of(element const& name) {
        auto const found = names().find(name.text());
        if (found == names().end()) name.expected("the name of an earlier tensor");
        if (auto const* problem = std::get_if<std::string>(&found->second)) name.fail(*problem);
        return std::get<std::uint32_t>(found->second);
    }
    /// Whether a name stands for a tensor without elements.
    [[nodiscard]] bool is_empty(element const& name) {
        auto const found = names().find(name.text());
        auto const* problem = found == names().end() ? nullptr : std::get_if<std::string>(&found->second);
        return problem && *problem == without_elements;
    }
    [[nodiscard]] tensor_meta meta_of(element const& place, std::string const& name) const {
        auto const found = metas().find(name);
        if (!found) place.fail("names '" + name + "', of which tensor_values has nothing");
        return read_meta(*found);
    }
    [[nodiscard]] std::string unique(std::string name) {
        if (auto const again = used_[name]++; again > 0) {
            name += "_" + std::to_string(again);
            return unique(std::move(name));
        }
        return name;
    }

    // Sources.

    void read_sources(element const& specs) {
        specs.for_each([&](element const& spec) {
            auto const [kind, e] = read_union(spec);
            if (kind == "parameter") add_source(e.at("arg"), kind, e.at("parameter_name").text());
            else if (kind == "buffer") add_source(e.at("arg"), kind, e.at("buffer_name").text());
            else if (kind == "tensor_constant") add_source(e.at("arg"), "buffer", e.at("tensor_constant_name").text());
            else if (kind == "user_input")
                if (auto const input = e.at("arg").find("as_tensor"))
                    add_source(*input, kind, input->at("name").text());
        });
    }
    void add_source(element const& argument, std::string const& kind, std::string const& wanted) {
        auto const place = argument.at("name");
        std::string const name = place.name();
        auto const meta = meta_of(place, name);
        if (meta.is_empty()) return bind(place, name, std::string(without_elements));
        std::string const own = unique(wanted.empty() ? name : wanted);
        auto& builder = recorder_.builder;
        auto const id = kind == "user_input"  ? builder.input(own, meta.stored(), meta.type)
                        : kind == "parameter" ? builder.parameter(own, meta.stored(), meta.type,
                                                                  meta.requires_grad && is_floating(meta.type))
                                              : builder.buffer(own, meta.stored(), meta.type);
        argument.takes(json::detail::bytes_of(builder.tensor(id)));
        add_tensor(place, name, meta, tensors_.add(own, id));
    }
    void add_tensor(element const& place, std::string const& name, tensor_meta const& meta, std::size_t number) {
        known_.resize(std::max(known_.size(), number + 1));
        known_[number] = meta;
        place.takes(sizeof(meta) + sizeof(traced_tensor));
        bind(place, name, static_cast<std::uint32_t>(number));
    }

    // Nodes.

    void read_nodes(element const& nodes) {
        nodes.for_each([&](element const& node) {
            try {
                read_node(node);
            } catch (input_error const& e) {
                std::string const message = e.what();
                if (message.starts_with(file_.name())) throw; // it names the place
                node.fail(message);
            }
        });
    }

    void read_node(element const& node) {
        std::string const target = node.at("target").name();
        if (target.starts_with("torch.ops.higher_order.") && read_graph_call(node)) return;
        node_call call{node, operator_name(node), as_view(qualified_name(target)), {}, {}, {}};
        read_results(call);
        if (makes_nothing(call)) return;
        bool const joins = call.qualified == "aten::cat"; // of which what has no elements is no part
        argument_reader const reader([&](element const& name) { return number_of(name); },
                                     [&](element const& name) { return joins && is_empty(name); });
        std::size_t items = 0;
        auto const inputs = node.at("inputs");
        if (call.results.empty() && !writes(call)) return; // a check of what is known
        inputs.for_each([&](element const& input) {
            auto const name = input.find("name");
            auto& argument = call.arguments.emplace_back(name ? name->text() : "", reader.read(input.at("arg")));
            items += json::detail::item_count(argument.value);
            if (items > json::detail::most_items)
                input.fail("is one of more than " + std::to_string(json::detail::most_items) + " items");
        });
        if (call.results.empty()) return write_nothing(call);
        apply(call);
    }

    /// Binds the results of what makes tensors without elements alone, whatever it makes them of.
    bool makes_nothing(node_call const& call) {
        if (call.metas.empty() || !algorithm::all_of(call.metas, [](tensor_meta const& m) { return m.is_empty(); }))
            return false;
        for (auto const& name : call.results) bind(call.node.at("outputs"), name, std::string(without_elements));
        return true;
    }

    /// Returns a name after the module that made the node.
    [[nodiscard]] std::string operator_name(element const& node) {
        std::string name = node.find("name") ? node.at("name").text() : std::string();
        auto const outputs = node.at("outputs");
        if (name.empty() && outputs.size() > 0)
            if (auto const tensor = outputs.item(0).find("as_tensor")) name = tensor->at("name").text();
        if (name.empty()) name = "operator";
        std::string path;
        if (auto const metadata = node.find("metadata"); metadata && metadata->value().is_object())
            if (auto const stack = metadata->find("nn_module_stack"); stack && stack->value().is_string())
                path = module_path(stack->text());
        return unique(path.empty() ? name : path + "." + name);
    }

    void read_results(node_call& call) {
        auto const add = [&](element const& tensor) {
            auto const place = tensor.at("name");
            if (call.results.size() == json::detail::most_results)
                place.fail("is one of more than " + std::to_string(json::detail::most_results) + " results");
            call.results.push_back(place.name());
            call.metas.push_back(meta_of(place, call.results.back()));
        };
        call.node.at("outputs").for_each([&](element const& output) {
            auto const [kind, e] = read_union(output);
            if (kind == "as_tensor") add(e);
            else if (kind == "as_tensors") e.for_each(add);
            else if (kind == "as_optional_tensor" || kind == "as_optional_tensors") {
                auto const add_if_there = [&](element const& item) {
                    if (auto const tensor = item.find("as_tensor")) add(*tensor);
                };
                if (e.value().is_array()) e.for_each(add_if_there);
                else add_if_there(e);
            } else if (auto const name = kind.starts_with("as_sym") ? e.find("as_name") : std::nullopt)
                bind(*name, name->name(), std::string(symbolic));
        });
    }

    /// What changes how its tensor is seen, and nothing in memory, is the view that it returns: later nodes use that.
    [[nodiscard]] static std::string as_view(std::string qualified) {
        constexpr std::array<std::string_view, 6> names{"aten::unsqueeze_", "aten::squeeze_",  "aten::t_",
                                                        "aten::transpose_", "aten::swapaxes_", "aten::swapdims_"};
        if (algorithm::find(names, qualified) != names.end()) qualified.pop_back();
        return qualified;
    }
    /// Whether an operator works in place by its name.
    [[nodiscard]] static bool writes(node_call const& call) {
        std::string_view const name = call.qualified;
        return name.starts_with("aten::") && name.ends_with('_') && !name.ends_with("__");
    }
    /// In-place work on lists of tensors, which returns nothing.
    [[noreturn]] static void write_nothing(node_call const& call) {
        call.node.fail("is " + call.qualified +
                       ", which changes tensors and returns none; expected an operator that "
                       "returns what it computes");
    }

    [[nodiscard]] static std::vector<std::uint32_t> tensors_in(node_call const& call) {
        std::vector<tensor_id> found;
        for (auto const& a : call.arguments) collect_tensors(a.value, found);
        return found;
    }

    void apply(node_call& call) {
        auto const operands = tensors_in(call);
        bool const in_place = writes(call) && !operands.empty() && !call.arguments.empty() &&
                              call.arguments.front().value.as<literal::tensor>();
        if (is_same(call, operands)) return bind_result(call, 0, operands.front());
        auto const ids = record(call, operands);
        if (in_place) {
            if (ids.empty() || !ids.front() || call.metas.front().stored() != known_[operands.front()].stored())
                call.node.fail("is " + call.qualified + ", whose result is not of the shape of what it changes");
            tensors_.write(operands.front(), *ids.front());
            return bind_result(call, 0, operands.front());
        }
        for (std::size_t r = 0; r < call.results.size(); ++r) {
            if (r >= ids.size() || !ids[r]) {
                bind(call.node.at("outputs"), call.results[r],
                     call.metas[r].is_empty() ? std::string(without_elements)
                                              : "is a result of " + call.qualified + " that a program cannot have");
                continue;
            }
            auto view = operands.empty() ? std::nullopt : view_of(call, operands.front(), r);
            auto const number = view ? tensors_.add_view(call.results[r], *ids[r], *std::move(view))
                                     : tensors_.add(call.results[r], *ids[r]);
            add_tensor(call.node.at("outputs"), call.results[r], call.metas[r], number);
        }
        account(call.node);
    }
    void bind_result(node_call const& call, std::size_t r, std::uint32_t number) {
        bind(call.node.at("outputs"), call.results[r], number);
        account(call.node);
    }
    void account(element const& node) {
        for (auto const operators = recorder_.builder.operators(); counted_ < operators.size(); ++counted_) {
            node.takes(json::detail::bytes_of(operators[counted_]));
            for (auto const t : operators[counted_].results)
                node.takes(json::detail::bytes_of(recorder_.builder.tensor(t)));
        }
    }

    /// Whether a result is its first operand and nothing is computed: an alias, a conversion to the type it has, a
    /// slice that takes all.
    [[nodiscard]] bool is_same(node_call const& call, std::vector<std::uint32_t> const& operands) const {
        constexpr std::array<std::string_view, 13> names{"aten::alias",           "aten::to",         "aten::_to_copy",
                                                         "aten::type_as",         "aten::contiguous", "aten::slice",
                                                         "aten::lift_fresh_copy", "aten::expand",     "aten::view",
                                                         "aten::reshape",         "aten::lift_fresh", "aten::positive",
                                                         "aten::_to_dtype"};
        if (call.results.size() != 1 || operands.empty() || algorithm::find(names, call.qualified) == names.end())
            return false;
        auto const &from = known_[operands.front()], &to = call.metas[0];
        bool const alike = from.dims == to.dims && from.type == to.type && from.is_complex == to.is_complex;
        // A slice with a step of -1 is none, though shapes are equal.
        return alike && call.integer("step").value_or(1) == 1;
    }

    /// The values of the results; fewer or none where they are not of a program's.
    std::vector<std::optional<tensor_id>> record(node_call const& call, std::vector<std::uint32_t> const& operands) {
        if (call.qualified == "aten::copy_") return {copied(call)};
        if (call.qualified == "aten::cat" && operands.size() == 1 &&
            call.metas.front().stored() == known_[operands.front()].stored() &&
            call.metas.front().type == known_[operands.front()].type)
            return {tensors_.current(operands.front())}; // joined with what has no elements
        bool const is_complex = algorithm::any_of(operands, [&](auto t) { return known_[t].is_complex; }) ||
                                algorithm::any_of(call.metas, [](tensor_meta const& m) { return m.is_complex; });
        auto arguments = call.arguments;
        for (auto& a : arguments) hold_current(a.value);
        auto const rank = operands.empty() ? call.metas.front().dims.size() : known_[operands.front()].dims.size();
        if (is_complex) {
            complex_call pairs{call.name, call.qualified, arguments, rank, {}, {}};
            for (auto t : operands) pairs.is_pair.push_back(known_[t].is_complex);
            for (auto const& meta : call.metas) pairs.results.push_back({meta.stored(), meta.type});
            if (auto made = add_pairs(recorder_, std::move(pairs))) return {*made};
        }
        auto functional = functional_call_of(call.qualified, std::move(arguments), rank);
        if (is_complex) functional.target = "aten." + std::string(heddle::detail::plain_name(call.qualified));
        return record(call, std::move(functional));
    }

    /// What has no elements is left out of the results.
    std::vector<std::optional<tensor_id>> record(node_call const& call, functional_call functional) {
        traced_call traced;
        traced.name = call.name;
        traced.target = std::move(functional.target);
        for (auto const& name : functional.keyword_order)
            collect_tensors(functional.keywords.at(name), traced.operands);
        traced.keywords = std::move(functional.keywords);
        std::vector<std::size_t> places;
        std::size_t const most = functional.result_count.value_or(call.results.size());
        for (std::size_t r = 0; r < std::min(most, call.results.size()); ++r)
            if (!call.metas[r].is_empty()) {
                traced.results.push_back({call.metas[r].stored(), call.metas[r].type});
                places.push_back(r);
            }
        if (traced.results.empty()) return {};
        auto const added = recorder_.add(std::move(traced));
        std::vector<std::optional<tensor_id>> ids(call.results.size());
        for (std::size_t k = 0; k < std::min(added.size(), places.size()); ++k) ids[places[k]] = added[k];
        return ids;
    }

    void hold_current(literal& value) {
        if (auto* tensor = std::get_if<literal::tensor>(&value.value)) tensor->id = tensors_.current(tensor->id);
        if (auto* list = std::get_if<literal::list>(&value.value))
            for (auto& item : *list) hold_current(item);
    }

    /// The values of one tensor in the shape and type of another.
    tensor_id copied(node_call const& call) {
        auto const source = call.arguments.size() > 1 ? call.arguments[1].value.as<literal::tensor>() : nullptr;
        if (!source) call.node.at("inputs").fail("have no tensor to copy from");
        tensor_id value = tensors_.current(source->id);
        auto const& meta = call.metas.front();
        auto const turn = [&](char const* target) {
            traced_call made;
            made.name = call.name;
            made.target = target;
            made.operands = {value};
            made.keywords.emplace("input", literal{literal::tensor{value}});
            made.results = {{meta.stored(), recorder_.builder.tensor(value).type}};
            if (std::string_view(target) == "torch.to") made.results.front().type = meta.type;
            value = recorder_.add(std::move(made)).front();
        };
        if (recorder_.builder.tensor(value).shape != meta.stored()) turn("torch.expand");
        if (recorder_.builder.tensor(value).type != meta.type) turn("torch.to");
        return value;
    }

    // Views.

    /// How a result shows elements of the first operand, if it does.
    [[nodiscard]] std::optional<tensor_view> view_of(node_call const& call, std::uint32_t parent, std::size_t r) const {
        auto const name = heddle::detail::plain_name(call.qualified);
        if (!call.qualified.starts_with("aten::")) return {};
        auto const among = [&](auto const&... names) { return ((name == names) || ...); };
        tensor_view view{.parent = parent};
        auto const rank = static_cast<std::int64_t>(known_[parent].dims.size());
        auto const axis = [&](std::string_view argument, std::int64_t absent) {
            auto const d = call.integer(argument).value_or(absent);
            return d < 0 ? d + rank : d;
        };
        using enum tensor_view::kind;
        if (among("detach", "view_as_real", "view_as_complex")) {
            view.how = whole;
        } else if (among("view", "unsqueeze", "squeeze", "flatten", "unflatten", "view_as", "reshape")) {
            bool const may_copy = among("flatten", "reshape");
            view.how = may_copy && !known_[parent].is_contiguous ? unknown : reshaped;
        } else if (among("transpose", "t", "numpy_T", "permute")) {
            view.how = permuted;
            view.order = order_of(call, rank);
            auto sorted = view.order;
            algorithm::sort(sorted);
            for (std::size_t d = 0; d < sorted.size(); ++d)
                if (sorted[d] != static_cast<std::int64_t>(d)) view.how = unknown;
            if (known_[parent].is_complex) view.order.push_back(rank);
        } else if (among("select", "slice", "split", "split_with_sizes", "chunk", "unbind")) {
            bool const is_selected = among("select", "unbind");
            auto const dim = axis("dim", 0);
            bool const fits = dim >= 0 && dim < rank &&
                              algorithm::all_of(
                                  call.metas,
                                  [&](tensor_meta const& m) {
                                      return m.dims.size() + (is_selected ? 1 : 0) == known_[parent].dims.size();
                                  });
            view.how = fits && call.integer("step").value_or(1) == 1 ? piece : unknown;
            if (!fits) return view;
            view.axis = static_cast<std::size_t>(dim);
            extent const size = known_[parent].dims[view.axis];
            auto const from_end = [&](std::int64_t at) { return std::clamp<extent>(at < 0 ? at + size : at, 0, size); };
            if (name == "select") view.first = from_end(call.integer("index").value_or(0));
            else if (name == "unbind") view.first = static_cast<extent>(r);
            else if (name == "slice") view.first = from_end(call.integer("start").value_or(0));
            else
                for (std::size_t before = 0; before < r; ++before) view.first += call.metas[before].dims[view.axis];
            view.end = view.first + (is_selected ? 1 : call.metas[r].dims[view.axis]);
            if (view.end > size) view.how = unknown;
        } else if (among("expand", "expand_as", "narrow", "diagonal", "as_strided", "movedim", "swapaxes", "unfold",
                         "real", "imag", "broadcast_tensors", "mT", "swapdims", "moveaxis", "view_as_real_copy")) {
            view.how = unknown;
        } else {
            return {};
        }
        return view;
    }

    /// Which dimension of its operand each of a transposition's result is.
    [[nodiscard]] static std::vector<std::int64_t> order_of(node_call const& call, std::int64_t rank) {
        auto const from_end = [&](std::int64_t d) { return d < 0 ? d + rank : d; };
        std::vector<std::int64_t> order;
        auto const* dims = call.find("dims");
        if (dims && dims->as<literal::list>()) {
            for (auto const& item : *dims->as<literal::list>())
                order.push_back(item.as<std::int64_t>() ? from_end(*item.as<std::int64_t>()) : rank);
            return order;
        }
        for (std::int64_t d = 0; d < rank; ++d) order.push_back(d);
        auto const first = call.integer("dim0"), second = call.integer("dim1");
        if (!first || !second) return {order.rbegin(), order.rend()};
        for (auto& d : order)
            d = d == from_end(*first) ? from_end(*second) : d == from_end(*second) ? from_end(*first) : d;
        return order;
    }

    // Sub-graphs.

    /// Reads a call of a graph in place: what it is wrapped for does not change what it computes, but for one whose
    /// derivatives are switched off. False for what chooses among graphs or repeats one.
    bool read_graph_call(element const& node) {
        auto const inputs = node.at("inputs");
        constexpr std::array<std::string_view, 7> known{"wrap_with_set_grad_enabled",
                                                        "wrap_with_autocast",
                                                        "tag_activation_checkpoint",
                                                        "invoke_subgraph",
                                                        "hints_wrapper",
                                                        "wrap",
                                                        "wrap_activation_checkpoint"};
        std::string const target = node.at("target").text();
        std::string_view const name = std::string_view(target).substr(target.rfind('.') + 1);
        if (algorithm::find(known, name) == known.end()) return false;
        std::optional<element> graph;
        bool detaches = false;
        std::vector<element> given;
        inputs.for_each([&](element const& input) {
            auto const [kind, e] = read_union(input.at("arg"));
            if (kind == "as_graph") graph = e.at("graph");
            else if (!graph && kind == "as_bool" && name == "wrap_with_set_grad_enabled") detaches = !e.boolean();
            else if (graph && kind == "as_tensor") given.push_back(e.at("name"));
            else if (graph && kind == "as_tensors")
                e.for_each([&](element const& tensor) { given.push_back(tensor.at("name")); });
        });
        if (!graph) inputs.expected("a graph among them");
        read_sub_graph(node, *graph, given, detaches);
        return true;
    }

    void read_sub_graph(element const& node, element const& graph, std::vector<element> const& given, bool detaches) {
        scope inner;
        auto const names_of = [](element const& list) {
            std::vector<element> names;
            auto const add = [&](element const& tensor) { names.push_back(tensor.at("name")); };
            list.for_each([&](element const& item) {
                auto const [kind, e] = read_union(item);
                if (kind == "as_tensor") add(e);
                else if (kind == "as_tensors") e.for_each(add);
            });
            return names;
        };
        auto const wanted = names_of(graph.at("inputs")), results = names_of(graph.at("outputs")),
                   outputs = names_of(node.at("outputs"));
        if (wanted.size() != given.size())
            graph.at("inputs").fail("are " + std::to_string(wanted.size()) + " tensors, the call gives " +
                                    std::to_string(given.size()));
        if (results.size() != outputs.size())
            graph.at("outputs").fail("are " + std::to_string(results.size()) + " tensors, the call has " +
                                     std::to_string(outputs.size()));
        for (std::size_t k = 0; k < wanted.size(); ++k)
            inner.emplace(wanted[k].text(), detaches ? detached(node, number_of(given[k])) : number_of(given[k]));
        scopes_.push_back(&inner);
        meta_.push_back(graph.at("tensor_values"));
        read_nodes(graph.at("nodes"));
        std::vector<binding> made;
        for (auto const& name : results) made.emplace_back(number_of(name));
        scopes_.pop_back();
        meta_.pop_back();
        for (std::size_t k = 0; k < made.size(); ++k) bind(node.at("outputs"), outputs[k].text(), made[k]);
    }

    /// What has no derivative where the tensor has one.
    std::uint32_t detached(element const& node, std::uint32_t t) {
        auto const id = tensors_.current(t);
        if (!recorder_.builder.is_differentiable(id)) return t;
        auto const name = unique(tensors_[t].name + ".detached");
        auto const dims = recorder_.builder.tensor(id).shape;
        auto const made = tensors_.apply({name, id, 0, 0, {}}, "torch.detach", {{literal::tensor{id}}}, {id}, dims);
        auto const number = tensors_.add_view(name, made, {.parent = t, .how = tensor_view::kind::whole});
        known_.resize(std::max(known_.size(), number + 1));
        known_[number] = known_[t];
        account(node);
        return static_cast<std::uint32_t>(number);
    }

    // The loss.

    [[nodiscard]] program finish(element const& specs) {
        std::optional<std::uint32_t> loss;
        std::optional<element> place;
        specs.for_each([&](element const& spec) {
            auto const [kind, e] = read_union(spec);
            bool const is_loss = kind == "loss_output";
            if (!is_loss && (kind != "user_output" || loss)) return;
            auto const name = is_loss ? e.at("arg").find("name") : std::optional<element>{};
            auto const tensor = is_loss ? std::optional<element>{} : e.at("arg").find("as_tensor");
            if (!name && !tensor) return;
            auto const found = number_of(name ? *name : tensor->at("name"));
            auto const& meta = known_[found];
            if (!meta.dims.empty() || !is_floating(meta.type) || meta.is_complex) return;
            loss = found;
            place = spec;
        });
        if (!loss)
            specs.fail("have no output that is a scalar of a floating-point type, the loss; export a module that "
                       "returns it, as adapters/libtorch/export_pt2.py does");
        try {
            return recorder_.finish(tensors_.current(*loss));
        } catch (input_error const& e) { place->fail(e.what()); }
    }

    json::document const& file_;
    call_recorder recorder_;
    tensor_views tensors_;
    std::vector<tensor_meta> known_;                       // by number
    std::vector<scope*> scopes_;                           // the graph that is read, and those around it
    std::vector<element> meta_;                            // likewise, what they say of their tensors
    std::map<std::string, std::size_t, std::less<>> used_; // names, and how often each was asked for
    std::size_t counted_ = 0;
};

} // namespace heddle::pt2::detail
