// SPDX-License-Identifier: BSL-1.0
// Writes the table of options as completions of shells.
#include "option_table.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace heddle::cli {

namespace {

/// Quotes a text for any of the shells.
std::string quoted(std::string const& text) {
    std::string result = "'";
    for (char const c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return result + "'";
}

std::string with_backslashes(std::string const& text, std::string_view before) {
    std::string result;
    for (char const c : text) {
        if (before.find(c) != before.npos) result += '\\';
        result += c;
    }
    return result;
}

std::string joined(std::vector<std::string> const& words) {
    std::string text;
    for (auto const& w : words) text += (text.empty() ? "" : " ") + w;
    return text;
}

/// Calls `visit` for each option that has a name.
template <class Visit>
void for_each_named(command_page const& page, Visit const& visit) {
    for (auto const& section : page.sections)
        for (auto const& row : section.rows)
            if (!row.has_place()) visit(row);
}

/// Returns what a command takes first, without a name; empty if that is any file, or nothing.
std::vector<std::string> first_words(command_page const& page) {
    for (auto const& section : page.sections)
        for (auto const& row : section.rows)
            if (row.has_place()) return row.choices;
    return {};
}

std::string for_bash(std::vector<command_page> const& pages) {
    std::string commands, values, options;
    for (auto const& page : pages) {
        commands += ' ' + page.name;
        std::string names;
        if (auto const first = first_words(page); !first.empty()) // the word before is the command itself
            values += "    '" + page.name + ' ' + page.name + "') words=" + quoted(joined(first)) + " ;;\n";
        for_each_named(page, [&](option_row const& row) {
            names += ' ' + row.name;
            if (!row.choices.empty())
                values += "    '" + page.name + ' ' + row.name + "') words=" + quoted(joined(row.choices)) + " ;;\n";
        });
        options += "        " + page.name + ") words=" + quoted(names.substr(1)) + " ;;\n";
    }
    return "# bash completion of heddle: source it, or put it into the folder of completions.\n"
           "_heddle() {\n"
           "    local word=${COMP_WORDS[COMP_CWORD]} words=\n"
           "    COMPREPLY=()\n"
           "    case \"${COMP_WORDS[1]} ${COMP_WORDS[COMP_CWORD-1]}\" in\n" +
           values +
           "    esac\n"
           "    if [ \"$COMP_CWORD\" = 1 ]; then\n"
           "        words=" +
           quoted(commands.substr(1)) +
           "\n"
           "    elif [ -z \"$words\" ] && [ \"${word#-}\" != \"$word\" ]; then\n"
           "        case \"${COMP_WORDS[1]}\" in\n" +
           options +
           "        esac\n"
           "    fi\n"
           "    [ -z \"$words\" ] || COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
           "}\n"
           "complete -o default -F _heddle heddle\n"; // files where it has nothing to say
}

std::string for_zsh(std::vector<command_page> const& pages) {
    std::string commands, options;
    for (auto const& page : pages) {
        commands += "        " + quoted(page.name + ':' + with_backslashes(page.description, ":")) + "\n";
        options += "        " + page.name + ") _arguments";
        for_each_named(page, [&](option_row const& row) {
            std::string const repeats = row.may_repeat ? "*" : "";
            std::string const value = row.value.empty() ? ""
                                                        : ':' + row.value + ':' +
                                                              (!row.choices.empty() ? '(' + joined(row.choices) + ')'
                                                               : row.takes_path()   ? "_files"
                                                                                    : " ");
            options += " \\\n            " +
                       quoted(repeats + row.name + '[' + with_backslashes(row.description, "[]:") + ']' + value);
        });
        auto const first = first_words(page);
        options += " \\\n            " +
                   (first.empty() ? "'*:file:_files'" : quoted("1:word:(" + joined(first) + ')')) + " ;;\n";
    }
    return "#compdef heddle\n"
           "_heddle() {\n"
           "    local -a commands=(\n" +
           commands +
           "    )\n"
           "    if (( CURRENT == 2 )); then\n"
           "        _describe command commands\n"
           "        return\n"
           "    fi\n"
           "    shift words\n"
           "    (( CURRENT-- ))\n"
           "    case $words[1] in\n" +
           options +
           "    esac\n"
           "}\n"
           "_heddle \"$@\"\n";
}

std::string for_fish(std::vector<command_page> const& pages) {
    std::string text = "# fish completion of heddle.\n";
    for (auto const& page : pages) {
        text +=
            "complete -c heddle -n __fish_use_subcommand -f -a " + page.name + " -d " + quoted(page.description) + "\n";
        if (auto const first = first_words(page); !first.empty())
            text += "complete -c heddle -n " + quoted("__fish_seen_subcommand_from " + page.name) + " -f -a " +
                    quoted(joined(first)) + "\n";
        for_each_named(page, [&](option_row const& row) {
            text += "complete -c heddle -n " + quoted("__fish_seen_subcommand_from " + page.name) + " -l " +
                    row.name.substr(2);
            if (!row.choices.empty()) text += " -x -a " + quoted(joined(row.choices));
            else if (row.takes_path()) text += " -r -F";
            else if (!row.value.empty()) text += " -x";
            text += " -d " + quoted(row.description) + "\n";
        });
    }
    return text;
}

} // namespace

std::string completion_for(std::string const& shell, CLI::App const& app) {
    auto pages = pages_of(app);
    std::vector<std::string> names;
    for (auto const& page : pages) names.push_back(page.name);
    for (auto& page : pages)
        if (page.name == "help")
            for (auto& row : page.sections.front().rows)
                if (row.has_place()) row.choices = names;
    if (shell == "bash") return for_bash(pages);
    return shell == "zsh" ? for_zsh(pages) : for_fish(pages);
}

} // namespace heddle::cli
