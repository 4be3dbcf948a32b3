// SPDX-License-Identifier: BSL-1.0
// Reads the table of options from what the parser was given, and writes it as help.
#include "option_table.hpp"

#include <heddle/plan/detail/report_text.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle::cli {

namespace {

std::vector<std::string> split_at(char separator, std::string_view text) {
    std::vector<std::string> parts;
    while (!text.empty()) {
        auto const end = std::min(text.find(separator), text.size());
        parts.emplace_back(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return parts;
}

/// What the parser calls a type of value is a word of its own; what it accepts follows: `{a,b}` or `INT in [2 - 64]`.
option_row row_of(CLI::Option const& option) {
    auto const type = option.get_type_name();
    auto const accepted = std::min(type.find(':'), type.size());
    option_row row;
    row.name = option.get_lnames().empty() ? option.get_name(true) : "--" + option.get_lnames().front();
    if (option.get_type_size() != 0) row.value = type.substr(0, accepted);
    if (row.value == "TEXT" || row.value == "INT" || row.value == "UINT" || row.value == "FLOAT")
        row.value = row.value == "TEXT" ? "NAME" : "N";
    if (row.has_place()) row.value = row.name;
    auto const rule = std::string_view(type).substr(std::min(accepted + 1, type.size()));
    if (rule.starts_with('{')) row.choices = split_at(',', rule.substr(1, rule.size() - 2));
    else if (auto const from = rule.find('['), to = rule.find(" - "), end = rule.find(']'); end != rule.npos)
        row.range =
            std::string(rule.substr(from + 1, to - from - 1)) + " to " + std::string(rule.substr(to + 3, end - to - 3));
    row.description = option.get_description();
    row.default_value = option.get_default_str();
    row.is_required = option.get_required();
    row.may_repeat = option.get_expected_max() == CLI::detail::expected_max_vector_size;
    return row;
}

/// Groups, which have no name, have help options of their own.
void add_rows(option_section& section, CLI::App const& command) {
    for (auto const* option : command.get_options())
        if (!command.get_name().empty() || option != command.get_help_ptr()) section.rows.push_back(row_of(*option));
}

} // namespace

std::string option_row::text() const {
    std::string more;
    auto const add = [&](std::string const& words) { more += (more.empty() ? " (" : ", ") + words; };
    if (is_required) add("required");
    if (!choices.empty()) {
        std::string all;
        for (auto const& c : choices) all += (all.empty() ? "" : ", ") + c;
        add("one of " + all);
    }
    if (!range.empty()) add(range);
    if (!default_value.empty()) add("default " + default_value);
    return description + more + (more.empty() ? "" : ")");
}

command_page page_of(CLI::App const& command) {
    command_page page{command.get_parent() ? command.get_name() : "", command.get_description(), {{"Options", {}}}};
    add_rows(page.sections.front(), command);
    for (auto const* group : command.get_subcommands([](CLI::App const* a) { return a->get_name().empty(); }))
        add_rows(page.sections.emplace_back(option_section{group->get_description(), {}}), *group);
    return page;
}

std::vector<command_page> pages_of(CLI::App const& app) {
    std::vector<command_page> pages;
    for (auto const* command : app.get_subcommands([](CLI::App const* a) { return !a->get_name().empty(); }))
        pages.push_back(page_of(*command));
    return pages;
}

std::string help_formatter::make_help(CLI::App const* app, std::string name, CLI::AppFormatMode) const {
    using detail::add_paragraph;
    auto const page = page_of(*app);
    auto const pages = pages_of(*app);
    std::string text, places;
    add_paragraph(text, "", page.description + '.');
    for (auto const& section : page.sections)
        for (auto const& row : section.rows)
            if (row.has_place()) places += ' ' + (row.is_required ? row.name : '[' + row.name + ']');
    text += "\nUsage: " + name + (pages.empty() ? places + " [OPTIONS]" : " COMMAND [OPTIONS]") + '\n';
    constexpr std::size_t column = 26;
    auto const add = [&](std::string const& first, std::string const& words) {
        std::string label = "  " + first;
        if (label.size() + 2 > column) text += std::exchange(label, "") + '\n';
        label.resize(column, ' ');
        add_paragraph(text, label, words);
    };
    for (auto const& section : page.sections) {
        text += '\n' + section.title + '\n';
        for (auto const& row : section.rows)
            if (!row.has_place()) add(row.name + (row.value.empty() ? "" : ' ' + row.value), row.text());
            else add(row.name, row.text());
    }
    if (!pages.empty()) text += "\nCommands\n";
    for (auto const& command : pages) add(command.name, command.description);
    if (!pages.empty()) text += "\nheddle help COMMAND lists the options of a command.\n";
    return text;
}

} // namespace heddle::cli
