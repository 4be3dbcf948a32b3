// SPDX-License-Identifier: BSL-1.0
// Prints help, and guesses what was meant by arguments that are not understood.
#include "usage.hpp"
#include "option_table.hpp"

#include <heddle/base/printable.hpp>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <iostream>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle::cli {

namespace {

std::string in_lower_case(std::string text) {
    for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return text;
}

/// Returns how many letters have to be inserted, left out, changed, or exchanged with the next to make one word the
/// other.
std::size_t edits_between(std::string_view a, std::string_view b) {
    std::vector<std::vector<std::size_t>> least(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
    std::iota(least[0].begin(), least[0].end(), std::size_t{0});
    for (std::size_t i = 1; i <= a.size(); ++i) {
        least[i][0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            least[i][j] =
                std::min({least[i - 1][j] + 1, least[i][j - 1] + 1, least[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                least[i][j] = std::min(least[i][j], least[i - 2][j - 2] + 1);
        }
    }
    return least[a.size()][b.size()];
}

/// Returns the word that a misspelt one is most like, if there is one: it begins with it, or at most a third of the
/// letters are wrong.
std::optional<std::string> meant_by(std::string const& misspelt, std::vector<std::string> const& words) {
    auto const written = in_lower_case(misspelt);
    std::optional<std::string> nearest;
    std::size_t least = std::max<std::size_t>(1, written.size() / 3) + 1;
    for (auto const& word : words)
        if (auto const edits = word.starts_with(written) ? 1 : edits_between(written, word); edits < least) {
            least = edits;
            nearest = word;
        }
    return nearest;
}

std::vector<std::string> commands_of(CLI::App const& app) {
    std::vector<std::string> names;
    for (auto const* command : app.get_subcommands([](CLI::App const*) { return true; }))
        names.push_back(command->get_name());
    return names;
}

/// Returns the options, with those of its groups, without hyphens.
std::vector<std::string> options_of(CLI::App const& command) {
    std::vector<std::string> names;
    for (auto const* option : command.get_options())
        names.insert(names.end(), option->get_lnames().begin(), option->get_lnames().end());
    for (auto const* group : command.get_subcommands([](CLI::App const* a) { return a->get_name().empty(); })) {
        auto const more = options_of(*group);
        names.insert(names.end(), more.begin(), more.end());
    }
    return names;
}

/// Returns the words between what is wrong and where to read on.
std::string question(std::optional<std::string> const& meant, char const* before = "") {
    return meant ? "; did you mean " + (before + *meant) + "? " : "; ";
}

std::string unknown_command(CLI::App const& app, std::string const& name) {
    return "there is no command '" + printable(name, 40) + "'" + question(meant_by(name, commands_of(app))) +
           "heddle help lists them";
}

} // namespace

void add_help(CLI::App& app) {
    auto const name = std::make_shared<std::string>(), shell = std::make_shared<std::string>();
    auto* const completion = app.add_subcommand(
        "completion", "Print a script that completes commands, options and what they take, for a shell");
    completion->add_option("SHELL", *shell, "The shell")->check(CLI::IsMember({"bash", "zsh", "fish"}))->required();
    completion->final_callback([&app, shell] { std::cout << completion_for(*shell, app); });
    auto* const help = app.add_subcommand("help", "Say how to use heddle, or one of its commands");
    auto* const one = help->add_option("COMMAND", *name, "The command");
    auto const is_manual = std::make_shared<bool>(false);
    help->add_flag("--man", *is_manual, "Print the manual page of all commands, for man")->excludes(one);
    help->final_callback([&app, name, is_manual] {
        if (*is_manual) {
            std::cout << manual_page(app);
            return;
        }
        auto const asked = app.get_subcommands([&](CLI::App const* command) { return command->get_name() == *name; });
        if (asked.empty() && !name->empty())
            throw CLI::ValidationError(unknown_command(app, *name), CLI::ExitCodes::ValidationError);
        std::cout << (asked.empty() ? app.get_formatter()->make_help(&app, app.get_name(), CLI::AppFormatMode::Normal)
                                    : asked.front()->help(app.get_name()));
    });
}

std::string explain(CLI::App const& app, CLI::ParseError const& e) {
    auto const chosen = app.get_subcommands();
    auto const before = app.remaining(); // the command
    if (chosen.empty() && before.empty()) return "a command is expected; heddle help lists them";
    if (chosen.empty() && !before.front().starts_with('-')) return unknown_command(app, before.front());
    auto const& command = before.empty() ? *chosen.front() : app;
    if (command.get_name() == "help") return printable(e.what(), 400);
    std::string const help = "heddle help" + (before.empty() ? " " + command.get_name() : "") + " says more";
    auto const rest = before.empty() ? command.remaining(true) : before;
    auto const option =
        std::ranges::find_if(rest, [](std::string const& text) { return text.size() > 1 && text.starts_with('-'); });
    if (option != rest.end()) {
        auto const written = option->substr(0, option->find('='));
        auto const letters = written.substr(std::min(written.find_first_not_of('-'), written.size()));
        return command.get_name() + " has no option " + printable(written, 40) +
               question(meant_by(letters, options_of(command)), "--") + help;
    }
    if (!rest.empty() && dynamic_cast<CLI::ExtrasError const*>(&e))
        return command.get_name() + " has no use for '" + printable(rest.front(), 40) + "'; " + help;
    return printable(e.what(), 400) + "; " + help;
}

} // namespace heddle::cli
