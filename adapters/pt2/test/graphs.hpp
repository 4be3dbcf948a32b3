// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Exported programs in few words, as the text that torch.export.save writes, and archives of them.
#pragma once

#include <nlohmann/json.hpp>
#include <zip.h>
#include <zlib.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle::test {

/// A graph under construction. Tensors and arguments are written as in operators.txt: `f(2,3)` is one of float32, `i`
/// of int64, `j` of int32, `b` of bool, `c` of complex64, `d` of float64.
class exported_graph {
public:
    using object = nlohmann::json;

    exported_graph() {
        root_ = {{"schema_version", {{"major", 8}, {"minor", 20}}},
                 {"opset_version", {{"aten", 10}}},
                 {"graph_module",
                  {{"graph",
                    {{"inputs", object::array()},
                     {"outputs", object::array()},
                     {"nodes", object::array()},
                     {"tensor_values", object::object()}}},
                   {"signature", {{"input_specs", object::array()}, {"output_specs", object::array()}}}}}};
    }

    /// Sources; they are named after their kind and number where no name is given.
    std::string parameter(std::string const& tensor, std::string name = {}) {
        return source("parameter", tensor, std::move(name));
    }
    std::string buffer(std::string const& tensor, std::string name = {}) {
        return source("buffer", tensor, std::move(name));
    }
    std::string input(std::string const& tensor, std::string name = {}) {
        return source("user_input", tensor, std::move(name));
    }

    /// `aten.add.Tensor self=%x other=2 -> f(2,3)`: adds a node, with `%name` for tensors that are there and `f(2,3)`
    /// for a new parameter or input; returns the names of the results.
    std::vector<std::string> node(std::string const& line, std::string const& module = {}) {
        auto const arrow = line.find(" ->");
        auto words = split(line.substr(0, arrow), ' ');
        object inputs = object::array();
        for (std::size_t w = 1; w < words.size(); ++w) {
            auto const equals = words[w].find('=');
            inputs.push_back(
                {{"name", words[w].substr(0, equals)}, {"arg", argument(words[w].substr(equals + 1))}, {"kind", 1}});
        }
        return add(words[0], std::move(inputs), line.substr(arrow + 3), module);
    }
    /// A call of a graph of its own, whose inputs have the names of what is given.
    std::vector<std::string> graph_call(std::string const& kind, object graph, std::vector<object> before,
                                        std::vector<std::string> const& given, std::string const& results) {
        object inputs = object::array();
        for (auto& b : before) inputs.push_back({{"name", ""}, {"arg", std::move(b)}, {"kind", 1}});
        inputs.push_back(
            {{"name", ""}, {"arg", {{"as_graph", {{"name", "inner"}, {"graph", std::move(graph)}}}}}, {"kind", 1}});
        for (auto const& name : given)
            inputs.push_back({{"name", ""}, {"arg", {{"as_tensor", {{"name", name}}}}}, {"kind", 1}});
        return add("higher_order." + kind, std::move(inputs), results, {});
    }

    /// Without sources of its own, as a sub-graph.
    [[nodiscard]] object inner(std::vector<std::string> const& inputs, std::vector<std::string> const& outputs) const {
        auto made = graph();
        for (auto const& name : inputs) made["inputs"].push_back({{"as_tensor", {{"name", name}}}});
        for (auto const& name : outputs) made["outputs"].push_back({{"as_tensor", {{"name", name}}}});
        return made;
    }
    /// Says of a tensor what it is, without a node that makes it.
    void declare(std::string const& name, std::string const& tensor) {
        graph()["tensor_values"][name] = meta(tensor, true);
    }

    void output(std::string const& name) {
        root_["graph_module"]["signature"]["output_specs"].push_back(
            {{"user_output", {{"arg", {{"as_tensor", {{"name", name}}}}}}}});
    }
    [[nodiscard]] object& root() { return root_; }
    [[nodiscard]] std::string text() const { return root_.dump(); }

private:
    [[nodiscard]] object& graph() { return root_["graph_module"]["graph"]; }
    [[nodiscard]] object const& graph() const { return root_["graph_module"]["graph"]; }

    /// At separators outside brackets.
    static std::vector<std::string> split(std::string const& text, char separator) {
        std::vector<std::string> parts{{}};
        int depth = 0;
        for (char c : text) {
            if (c == '(' || c == '[' || c == '{') ++depth;
            if (c == ')' || c == ']' || c == '}') --depth;
            if (c == separator && depth == 0) parts.emplace_back();
            else parts.back() += c;
        }
        std::erase(parts, std::string());
        return parts;
    }
    static bool is_tensor(std::string const& text) {
        return text.size() > 2 && std::string_view("fijbcd").find(text[0]) != std::string_view::npos && text[1] == '(';
    }
    static object meta(std::string const& tensor, bool requires_grad) {
        constexpr std::string_view letters = "fijbcd";
        constexpr int types[]{7, 5, 4, 12, 10, 8};
        if (!is_tensor(tensor)) throw std::runtime_error("no tensor: " + tensor);
        object sizes = object::array(), strides = object::array();
        std::vector<std::int64_t> dims;
        for (auto const& size : split(tensor.substr(2, tensor.size() - 3), ',')) dims.push_back(std::stoll(size));
        std::int64_t stride = 1;
        for (std::size_t d = dims.size(); d-- > 0; stride *= dims[d]) {
            object const one{{"as_int", stride}};
            strides.insert(strides.begin(), one);
        }
        for (auto size : dims) sizes.push_back({{"as_int", size}});
        return {{"dtype", types[letters.find(tensor[0])]},
                {"sizes", std::move(sizes)},
                {"strides", std::move(strides)},
                {"requires_grad", requires_grad},
                {"layout", 7}};
    }

    std::string source(std::string const& kind, std::string const& tensor, std::string name) {
        if (name.empty()) name = kind + std::to_string(count_++);
        bool const trained = kind == "parameter" && (tensor[0] == 'f' || tensor[0] == 'd');
        std::string const held = (kind == "user_input" ? "" : kind.substr(0, 1) + "_") + name;
        graph()["tensor_values"][held] = meta(tensor, trained);
        object const reference{{"name", held}};
        object spec;
        if (kind == "user_input") spec = {{kind, {{"arg", {{"as_tensor", reference}}}}}};
        else spec = {{kind, {{"arg", reference}, {kind + "_name", name}}}};
        root_["graph_module"]["signature"]["input_specs"].push_back(std::move(spec));
        graph()["inputs"].push_back({{"as_tensor", reference}});
        return held;
    }

    object tensor(std::string const& text) {
        if (text[0] == '%') return {{"name", text.substr(1)}};
        bool const is_floating = text[0] == 'f' || text[0] == 'd';
        return {{"name", is_floating ? parameter(text) : input(text)}};
    }
    object argument(std::string const& text) {
        if (text == "none") return {{"as_none", true}};
        if (text == "dev") return {{"as_device", {{"type", "meta"}, {"index", nullptr}}}};
        if (text == "true" || text == "false") return {{"as_bool", text == "true"}};
        if (text.ends_with("inf")) return {{"as_float", text == "inf" ? "Infinity" : "-Infinity"}};
        if (text.starts_with("ty")) return {{"as_scalar_type", std::stoi(text.substr(2))}};
        if (text[0] == '\'') return {{"as_string", text.substr(1, text.size() - 2)}};
        if (text[0] == '%' || is_tensor(text)) return {{"as_tensor", tensor(text)}};
        object items = object::array();
        if (text.starts_with("?[")) {
            for (auto const& t : split(text.substr(2, text.size() - 3), ','))
                items.push_back(t == "none" ? object{{"as_none", true}} : object{{"as_tensor", tensor(t)}});
            return {{"as_optional_tensors", std::move(items)}};
        }
        auto const inside = text.size() > 1 ? split(text.substr(1, text.size() - 2), ',') : std::vector<std::string>();
        if (text[0] == '[') {
            for (auto const& t : inside) items.push_back(tensor(t));
            return {{"as_tensors", std::move(items)}};
        }
        if (text[0] == '(') {
            for (auto const& t : inside) items.push_back(std::stoll(t));
            return {{"as_ints", std::move(items)}};
        }
        if (text[0] == '{') {
            for (auto const& t : inside) items.push_back(std::stod(t));
            return {{"as_floats", std::move(items)}};
        }
        if (text.find_first_of(".e") != std::string::npos) return {{"as_float", std::stod(text)}};
        return {{"as_int", std::stoll(text)}};
    }

    std::vector<std::string> add(std::string const& target, object inputs, std::string const& results,
                                 std::string const& module) {
        std::vector<std::string> names;
        auto const declared = [&](std::string const& result) {
            names.push_back("v" + std::to_string(count_++));
            graph()["tensor_values"][names.back()] = meta(result, false);
            return object{{"name", names.back()}};
        };
        object outputs = object::array();
        for (auto const& result : split(results, ' ')) {
            if (result[0] != '[') {
                outputs.push_back({{"as_tensor", declared(result)}});
                continue;
            }
            object items = object::array();
            for (auto const& item : split(result.substr(1, result.size() - 2), ',')) items.push_back(declared(item));
            outputs.push_back({{"as_tensors", std::move(items)}});
        }
        object made{{"target", "torch.ops." + target},
                    {"inputs", std::move(inputs)},
                    {"outputs", std::move(outputs)},
                    {"metadata", object::object()}};
        made["name"] = names.empty() ? "check" : names.front();
        if (!module.empty()) made["metadata"]["nn_module_stack"] = "root,,Top;part," + module + ",torch.nn.Linear";
        graph()["nodes"].push_back(std::move(made));
        return names;
    }

    object root_;
    int count_ = 0;
};

/// A zip of entries, with nothing compressed as torch.export.save writes it, or with all of it.
inline std::string archive_of(std::vector<std::pair<std::string, std::string>> const& entries,
                              bool compressed = false) {
    zip_error_t error;
    zip_error_init(&error);
    zip_source_t* const memory = zip_source_buffer_create(nullptr, 0, 0, &error);
    zip_source_keep(memory);
    zip_t* const archive = zip_open_from_source(memory, ZIP_CREATE | ZIP_TRUNCATE, &error);
    if (!archive) throw std::runtime_error(zip_error_strerror(&error));
    for (auto const& [name, text] : entries) {
        auto const number =
            zip_file_add(archive, name.c_str(), zip_source_buffer(archive, text.data(), text.size(), 0), 0);
        zip_set_file_compression(archive, static_cast<zip_uint64_t>(number), compressed ? ZIP_CM_DEFLATE : ZIP_CM_STORE,
                                 1);
    }
    if (zip_close(archive) != 0) throw std::runtime_error(zip_strerror(archive));
    zip_stat_t stat;
    zip_stat_init(&stat);
    zip_source_stat(memory, &stat);
    std::string bytes(stat.size, '\0');
    zip_source_open(memory);
    zip_source_read(memory, bytes.data(), bytes.size());
    zip_source_close(memory);
    zip_source_free(memory);
    return bytes;
}

/// A two-layer network with its loss.
inline exported_graph small_network() {
    exported_graph g;
    auto const w1 = g.parameter("f(8,4)", "layers.0.weight"), b1 = g.parameter("f(8)", "layers.0.bias"),
               w2 = g.parameter("f(5,8)", "layers.1.weight"), x = g.input("f(6,4)", "x"), y = g.input("i(6)", "labels");
    auto const h =
        g.node("aten.linear.default input=%" + x + " weight=%" + w1 + " bias=%" + b1 + " -> f(6,8)", "layers.0")[0];
    g.node("aten._assert_tensor_metadata.default a=%" + h + " dtype=ty7 ->");
    auto const r = g.node("aten.relu.default self=%" + h + " -> f(6,8)", "layers.0.act@1")[0];
    auto const s = g.node("aten.linear.default input=%" + r + " weight=%" + w2 + " -> f(6,5)", "layers.1")[0];
    g.output(g.node("aten.cross_entropy_loss.default self=%" + s + " target=%" + y + " -> f()")[0]);
    return g;
}

} // namespace heddle::test
