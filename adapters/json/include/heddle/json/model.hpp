// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Reads model files: a traced training graph becomes a program.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/program/call_recorder.hpp>

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::json {

class document;

struct model {
    std::string name;
    heddle::program program;
    /// The targets without a rule, and one warning for each.
    std::vector<missing_rule> missing_rules;
    std::vector<std::string> warnings;
    /// The digest of the file's content, uncompressed.
    std::string digest;
};

namespace detail {

inline constexpr extent largest_extent = extent{1} << 40;
inline constexpr double most_elements = 1125899906842624.0; // 2^50, exact in a double
inline constexpr std::size_t most_dimensions = 64;
inline constexpr std::size_t most_results = 255;
inline constexpr std::size_t most_arguments = 4096;
inline constexpr std::size_t most_items = 65536; // among the arguments of a call, with what the nodes named there hold

/// Counts the literals in a literal, including itself; a long text counts as several.
[[nodiscard]] std::size_t item_count(literal const& value);

/// Returns the approximate memory of an operator.
[[nodiscard]] std::size_t bytes_of(operator_info const& op);

[[nodiscard]] std::size_t bytes_of(tensor_info const& t);

/// What a model is called that does not say: its file without folder and extensions.
[[nodiscard]] std::string stem_of(std::string const& file);

} // namespace detail

/// Reads a model from a document. *Throws* `input_error`.
[[nodiscard]] model parse_model(document const& file);

/// Reads a model from text; `name` stands in messages.
/// *Throws* `input_error`.
[[nodiscard]] model parse_model(std::string_view text, std::string const& name = "model");

/// Reads a model file.
/// *Throws* `file_error` if it cannot be read, `input_error` naming the place if it is wrong.
[[nodiscard]] model read_model(std::filesystem::path const& path);

} // namespace heddle::json

#if HEDDLE_DEFINITIONS

#include <heddle/base/algorithm.hpp>
#include <heddle/json/document.hpp>
#include <heddle/theory/whole_inputs.hpp>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

namespace heddle::json {

namespace detail {

HEDDLE_INLINE std::size_t item_count(literal const& value) {
    std::size_t count = 1;
    if (auto const* text = value.as<std::string>()) count += text->size() / sizeof(literal);
    if (auto const* list = value.as<literal::list>())
        for (auto const& item : *list) count += item_count(item);
    return count;
}

HEDDLE_INLINE std::size_t bytes_of(operator_info const& op) {
    constexpr std::size_t allocation = 32;
    std::size_t bytes = sizeof(op) + 2 * op.name.size() + op.kind.size() + 8 * (op.operands.size() + op.results.size());
    for (auto const& index : op.rule.indices) bytes += sizeof(index) + index.name.size();
    for (auto const* side : {&op.rule.operands, &op.rule.results})
        for (auto const& access : *side) {
            bytes += sizeof(access) + allocation;
            for (auto const& dimension : access)
                bytes += sizeof(dimension) + allocation + dimension.size() * sizeof(dimension.front());
        }
    for (auto const& term : op.rule.terms) bytes += sizeof(term) + allocation + term.size();
    for (auto const& [name, numbers] : op.attributes)
        bytes += 4 * allocation + numbers.size() * sizeof(numbers.front());
    return bytes;
}

HEDDLE_INLINE std::size_t bytes_of(tensor_info const& t) {
    return sizeof(t) + t.name.size() + t.shape.size() * sizeof(extent);
}

HEDDLE_INLINE std::string stem_of(std::string const& file) {
    std::filesystem::path stem = std::filesystem::path(file).filename();
    while (stem.has_extension()) stem = stem.stem();
    return printable(stem.string());
}

HEDDLE_INLINE tensor_shape read_shape(element const& e) {
    if (e.size() > most_dimensions) e.expected("at most " + std::to_string(most_dimensions) + " extents");
    tensor_shape result;
    double elements = 1;
    e.for_each([&](element const& item) {
        result.push_back(item.integer(1, largest_extent));
        elements *= static_cast<double>(result.back());
    });
    if (elements > most_elements) e.fail("is the shape of more than 2^50 elements");
    return result;
}

/// Reads numbers that JSON cannot write.
HEDDLE_INLINE double read_special(element const& e) {
    std::string const text = e.text();
    if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (text != "inf" && text != "-inf") e.expected("\"inf\", \"-inf\" or \"nan\"");
    return text == "inf" ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
}

/// Turns nodes into sources and calls of a builder, one after the other.
class model_reader {
public:
    explicit model_reader(document const& file) : file_(file) {}

    model read() {
        if (auto const rules = file_.root().find("rules")) read_rules(*rules);
        element const nodes = file_.root().at("nodes");
        if (nodes.size() == 0) nodes.expected("at least one node");
        for (std::size_t i = 0, last = nodes.size() - 1; i < last; ++i) read_node(nodes.item(i), i);
        model result;
        result.program = read_output(nodes.item(nodes.size() - 1), nodes.size() - 1);
        result.name = read_name();
        result.missing_rules = recorder_.missing();
        result.warnings = recorder_.warnings();
        result.digest = file_.digest();
        return result;
    }

private:
    /// The nodes that literals name, and the number of literals, including nested ones and those of the nodes.
    struct usage {
        std::vector<std::uint32_t> nodes;
        std::size_t items = 0;
    };
    /// The arguments of a node as they are read.
    struct arguments {
        std::vector<literal> positional;
        std::map<std::string, literal, std::less<>> keywords;
        std::vector<std::uint32_t> nodes;
    };
    /// What a node yields; an item of a tuple shares it.
    using yield = std::shared_ptr<literal const>;

    void read_rules(element const& rules) {
        for (auto const& [target, text] : rules.fields()) {
            try {
                check_rule(target, text.text());
            } catch (input_error const& e) {
                if (text.value().is_string()) text.fail(e.what());
                throw;
            }
            recorder_.rules.emplace(target, text.text());
        }
    }

    [[nodiscard]] std::string read_name() const {
        auto const meta = file_.root().find("meta");
        if (meta && meta->value().is_object())
            if (auto const found = meta->find("model"); found && found->value().is_string()) return found->text();
        return stem_of(file_.name());
    }

    void check_identity(element const& node, std::size_t number) {
        auto const id = node.at("id");
        if (id.integer(0, std::numeric_limits<std::int32_t>::max()) != static_cast<std::int64_t>(number))
            id.expected("the node's position, " + std::to_string(number));
        auto const name = node.at("name");
        node.takes(2 * name.name().size() + 256); // its name and what it yields
        if (!names_.insert(name.name()).second) name.expected("a name that no other node has");
    }

    void read_node(element const& node, std::size_t number) {
        check_identity(node, number);
        auto const op = node.at("op");
        std::string const kind = op.text();
        if (kind == "call_function" || kind == "call_method") yields_.push_back(read_call(node));
        else if (kind == "placeholder" || kind == "parameter" || kind == "buffer")
            yields_.push_back(std::make_shared<literal>(read_source(node, kind)));
        else if (kind == "output") op.fail("is \"output\" before the last node");
        else op.expected("placeholder, parameter, buffer, call_function, call_method or output");
    }

    [[nodiscard]] traced_call::result read_tensor(element const& out) const {
        return {read_shape(out.at("shape")), out.at("dtype").choice(element_types)};
    }

    /// Returns a name that no other source has. torch.fx has a node for each use of a buffer: from the second on they
    /// are named after their node.
    [[nodiscard]] std::string source_name(element const& node, std::string const& kind,
                                          traced_call::result const& tensor) const {
        auto const target = node.at("target");
        std::string name = target.name();
        if (auto const known = sources_.find(name); known != sources_.end() && kind == "buffer") {
            auto const& first = recorder_.builder.tensor(known->second);
            if (first.role == tensor_role::buffer && first.shape == tensor.shape && first.type == tensor.type)
                name = node.at("name").name();
        }
        if (sources_.contains(name)) target.expected("a name that no other input, parameter or buffer has");
        return name;
    }

    literal read_source(element const& node, std::string const& kind) {
        if (auto const inputs = node.at("inputs"); inputs.size() != 0) inputs.expected("none for a " + kind);
        auto const out = node.at("out"), out_kind = out.at("kind");
        if (out_kind.text() != "tensor") out_kind.expected("\"tensor\" for a " + kind);
        auto const tensor = read_tensor(out);
        std::string const name = source_name(node, kind, tensor);
        tensor_id const made = add_source(node, kind, name, tensor);
        sources_.emplace(name, made);
        node.takes(bytes_of(recorder_.builder.tensor(made)) + name.size() + 128);
        return {literal::tensor{made}};
    }

    tensor_id add_source(element const& node, std::string const& kind, std::string const& name,
                         traced_call::result const& tensor) {
        auto& builder = recorder_.builder;
        if (kind == "placeholder") return builder.input(name, tensor.shape, tensor.type);
        if (kind == "buffer") return builder.buffer(name, tensor.shape, tensor.type);
        auto const trained = node.find("requires_grad");
        bool const trainable = !trained || trained->boolean();
        if (trainable && !is_floating(tensor.type))
            node.fail(
                "is a trained parameter of an integer type; expected a floating-point type, or requires_grad false");
        return builder.parameter(name, tensor.shape, tensor.type, trainable);
    }

    // Arguments.

    static void count(element const& e, usage& used, std::size_t items) {
        used.items += items;
        if (used.items > most_items)
            e.fail("is one of more than " + std::to_string(most_items) + " items among the arguments");
    }

    [[nodiscard]] literal const& yield_of(element const& id, usage& used) const {
        auto const number = static_cast<std::uint32_t>(id.integer(0, std::numeric_limits<std::int32_t>::max()));
        if (number >= yields_.size()) id.expected("the id of an earlier node");
        if (used.nodes.size() == most_arguments)
            id.fail("is one of more than " + std::to_string(most_arguments) + " nodes among the arguments");
        used.nodes.push_back(number);
        count(id, used, item_count(*yields_[number]));
        return *yields_[number];
    }

    [[nodiscard]] literal read_slice(element const& slice, usage& used) const {
        if (slice.size() != 3) slice.expected("[start, stop, step]");
        literal::slice result;
        std::optional<std::int64_t>* const parts[] = {&result.start, &result.stop, &result.step};
        for (std::size_t i = 0; i < 3; ++i) {
            literal const part = read_literal(slice.item(i), used);
            if (auto const* number = part.as<std::int64_t>()) *parts[i] = *number;
            else if (!part.is_none()) slice.item(i).expected("an integer, a node that is one, or null");
        }
        return {result};
    }

    [[nodiscard]] literal read_object(element const& e, usage& used) const {
        if (e.value().size() == 1) {
            if (auto const id = e.find("node")) return yield_of(*id, used);
            if (auto const slice = e.find("slice")) return read_slice(*slice, used);
            if (e.find("ellipsis")) return {literal::ellipsis{}};
            if (auto const special = e.find("float")) return {read_special(*special)};
        }
        e.expected("{\"node\": id}, {\"slice\": [...]}, {\"ellipsis\": true} or {\"float\": \"inf\"}");
    }

    [[nodiscard]] literal read_literal(element const& e, usage& used) const {
        auto const& value = e.value();
        if (value.is_null()) return {};
        if (value.is_boolean()) return {value.boolean()};
        if (value.is_number_integer())
            return {e.integer(std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max())};
        if (value.is_number()) return {e.number()};
        if (value.is_string()) return {e.text()};
        if (value.is_object()) return read_object(e, used);
        literal::list items;
        count(e, used, e.size());
        e.takes(e.size() * sizeof(literal));
        e.for_each([&](element const& item) { items.push_back(read_literal(item, used)); });
        return {std::move(items)};
    }

    [[nodiscard]] arguments read_arguments(element const& node) const {
        arguments result;
        usage used;
        if (auto const args = node.find("args"))
            args->for_each([&](element const& item) { result.positional.push_back(read_literal(item, used)); });
        if (auto const kwargs = node.find("kwargs"))
            for (auto const& [key, item] : kwargs->fields()) result.keywords.emplace(key, read_literal(item, used));
        result.nodes = std::move(used.nodes);
        algorithm::sort(result.nodes);
        return result;
    }

    /// Returns the nodes in `inputs`, which are those among the arguments in the order in which they were written.
    [[nodiscard]] std::vector<std::uint32_t> read_inputs(element const& node, arguments const& args) const {
        auto const inputs = node.at("inputs");
        std::vector<std::uint32_t> ids = inputs.numbers_below(yields_.size()), sorted = ids;
        algorithm::sort(sorted);
        if (sorted != args.nodes) inputs.fail("are not the nodes among args and kwargs");
        return ids;
    }

    // Calls.

    /// Returns what a node yields, as its `out` describes it; results in it are numbered from 0. `size` and `value` are
    /// folded here.
    [[nodiscard]] literal read_out(element const& out, std::vector<traced_call::result>& results) const {
        auto const kind = out.at("kind");
        std::string const text = kind.text();
        if (text == "tensor") {
            if (results.size() == most_results)
                out.fail("is one of more than " + std::to_string(most_results) + " results");
            results.push_back(read_tensor(out));
            return {literal::tensor{static_cast<tensor_id>(results.size() - 1)}};
        }
        if (text == "tuple") {
            literal::list items;
            out.at("items").for_each([&](element const& item) { items.push_back(read_out(item, results)); });
            return {std::move(items)};
        }
        if (text != "value" && text != "size") kind.expected("\"tensor\", \"tuple\", \"value\" or \"size\"");
        auto const value = out.at("value");
        if (text == "size" && !value.value().is_array()) value.expected("an array of integers");
        usage used;
        literal result = read_literal(value, used);
        if (used.items > most_arguments)
            value.expected("at most " + std::to_string(most_arguments) + " items, those of lists in it included");
        if (!used.nodes.empty()) value.fail("names a node, expected a constant");
        return result;
    }

    static void renumber(literal& value, std::vector<tensor_id> const& results) {
        if (auto* tensor = std::get_if<literal::tensor>(&value.value)) tensor->id = results[tensor->id];
        if (auto* list = std::get_if<literal::list>(&value.value))
            for (auto& item : *list) renumber(item, results);
    }

    /// Takes an item of a tuple, which is no operator; checks that `out` describes it.
    [[nodiscard]] yield take_item(element const& node, yield const& tuple, literal const& index,
                                  std::vector<traced_call::result> const& declared) const {
        auto const& items = *tuple->as<literal::list>();
        auto const* number = index.as<std::int64_t>();
        auto const size = static_cast<std::int64_t>(items.size());
        if (!number || *number < -size || *number >= size)
            node.fail("takes an item that its tuple of " + std::to_string(size) + " has not");
        literal const& item = items[static_cast<std::size_t>(*number < 0 ? *number + size : *number)];
        std::vector<tensor_id> tensors;
        collect_tensors(item, tensors);
        bool same = tensors.size() == declared.size();
        for (std::size_t i = 0; same && i < tensors.size(); ++i) {
            auto const& info = recorder_.builder.tensor(tensors[i]);
            same = info.shape == declared[i].shape && info.type == declared[i].type;
        }
        if (!same) node.at("out").fail("is not the item that the tuple has there");
        return {tuple, &item};
    }

    yield read_call(element const& node) {
        std::vector<traced_call::result> results;
        literal yielded = read_out(node.at("out"), results);
        arguments args = read_arguments(node);
        auto const inputs = read_inputs(node, args);
        if (results.empty()) return std::make_shared<literal>(std::move(yielded));
        std::string const target = node.at("target").name();
        bool const is_of_list =
            target == "operator.getitem" && args.positional.size() == 2 && args.positional[0].as<literal::list>();
        if (is_of_list && node.at("args").item(0).value().is_object()) // the node itself, not a list of nodes
            return take_item(node, yields_[inputs.front()], args.positional[1], results);
        traced_call call{node.at("name").text(),   target, std::move(args.positional),
                         std::move(args.keywords), {},     std::move(results)};
        for (auto id : inputs) collect_tensors(*yields_[id], call.operands);
        renumber(yielded, add(node, call));
        return std::make_shared<literal>(std::move(yielded));
    }

    std::vector<tensor_id> add(element const& node, traced_call const& call) {
        std::vector<tensor_id> added;
        try {
            added = recorder_.add(call);
        } catch (input_error const& e) { node.fail(e.what()); }
        for (auto const operators = recorder_.builder.operators(); counted_ < operators.size(); ++counted_) {
            node.takes(bytes_of(operators[counted_]));
            for (auto const t : operators[counted_].results) node.takes(bytes_of(recorder_.builder.tensor(t)));
        }
        return added;
    }

    [[nodiscard]] program read_output(element const& node, std::size_t number) {
        check_identity(node, number);
        if (auto const op = node.at("op"); op.text() != "output") op.expected("\"output\" for the last node");
        auto const inputs = node.at("inputs");
        auto const ids = inputs.numbers_below(yields_.size());
        if (ids.empty()) inputs.expected("the loss");
        auto const* loss = yields_[ids.front()]->as<literal::tensor>();
        if (!loss || !recorder_.builder.tensor(loss->id).shape.empty())
            inputs.item(0).expected("a node that yields a tensor of shape [], the loss");
        try {
            return with_whole_inputs(recorder_.finish(loss->id));
        } catch (input_error const& e) { node.fail(e.what()); }
    }

    document const& file_;
    call_recorder recorder_;
    std::size_t counted_ = 0; // of its operators, those whose memory is
    std::vector<yield> yields_;
    std::set<std::string> names_;              // of nodes
    std::map<std::string, tensor_id> sources_; // by name
};

} // namespace detail

HEDDLE_INLINE model parse_model(document const& file) {
    return detail::guarded(file.name(), [&] { return detail::model_reader(file).read(); });
}

HEDDLE_INLINE model parse_model(std::string_view text, std::string const& name) {
    return detail::guarded(name, [&] { return detail::model_reader(document(name, text, "model", 1)).read(); });
}

HEDDLE_INLINE model read_model(std::filesystem::path const& path) {
    return detail::guarded(path.string(), [&] {
        document const file(path.string(), read_text(path), "model", 1); // its text is gone when the program is made
        return detail::model_reader(file).read();
    });
}

} // namespace heddle::json

#endif
