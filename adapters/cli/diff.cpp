// SPDX-License-Identifier: BSL-1.0
// heddle diff: in what two plans differ, and what that costs.
#include "commands.hpp"
#include "output.hpp"
#include "plan_difference.hpp"

#include <heddle/plan/detail/report_text.hpp>

#include <iostream>
#include <string>

namespace heddle::cli {

int run_diff(diff_arguments const& arguments) {
    auto const one = compared(read_any_plan(arguments.one)), other = compared(read_any_plan(arguments.other));
    if (arguments.json) {
        std::cout << difference(one, other).dump() << '\n';
        return done;
    }
    std::string text;
    heddle::detail::add_paragraph(text, "one    ", one.title);
    heddle::detail::add_paragraph(text, "other  ", other.title);
    print_report(text + '\n' + difference_report(one, other));
    return done;
}

} // namespace heddle::cli
