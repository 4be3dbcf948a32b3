// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Reads exported programs of PyTorch (`torch.export`): the training graph that `torch.export.save` wrote
/// becomes a program.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/json/model.hpp>

#include <filesystem>
#include <string>
#include <string_view>

namespace heddle::pt2 {

/// Reads a model from a file's bytes, as `read_model` does; `name` stands in messages. *Throws* `input_error`.
[[nodiscard]] json::model parse_model(std::string_view bytes, std::string const& name = "model", rule_table rules = {});

/// Reads a model file: an archive that `torch.export.save` wrote, its graph alone as JSON, or a model of
/// `heddle::json`; each plain or compressed with gzip. What it is, its content says.
///
/// Schema 8 of any minor version is read, the training graph or a decomposed one. Of an archive nothing is read but its
/// graph: weights may be of any size. In-place operators become values; operators without a rule, which the warnings
/// name, are computed in full on every device. `rules` are the caller's own, as those of a model file.
/// *Throws* `file_error` if it cannot be read, `input_error` naming the place if it is wrong.
[[nodiscard]] json::model read_model(std::filesystem::path const& path, rule_table rules = {});

} // namespace heddle::pt2

#if HEDDLE_DEFINITIONS

#include <heddle/pt2/archive.hpp>
#include <heddle/pt2/detail/program_reader.hpp>

#include <utility>

namespace heddle::pt2 {

namespace detail {

/// The graph of an exported program, or a model of `heddle::json`.
HEDDLE_INLINE json::model read_document(json::document const& file, rule_table rules) {
    if (file.root().find("graph_module")) return program_reader(file, std::move(rules)).read();
    return json::parse_model(file);
}

} // namespace detail

HEDDLE_INLINE json::model parse_model(std::string_view bytes, std::string const& name, rule_table rules) {
    return json::detail::guarded(name, [&] {
        std::string const graph = is_archive(bytes) ? graph_of_archive(bytes, name) : std::string();
        json::document const file(name, graph.empty() ? bytes : std::string_view(graph), "model", 1);
        return detail::read_document(file, std::move(rules));
    });
}

HEDDLE_INLINE json::model read_model(std::filesystem::path const& path, rule_table rules) {
    return json::detail::guarded(path.string(), [&] {
        std::string text = is_archive_file(path) ? graph_of_archive(path) : json::read_text(path);
        if (is_archive(text)) text = graph_of_archive(text, path.string());
        json::document const file(path.string(), std::exchange(text, {}), "model", 1);
        return detail::read_document(file, std::move(rules));
    });
}

} // namespace heddle::pt2

#endif
