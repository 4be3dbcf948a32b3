// SPDX-License-Identifier: BSL-1.0
#include <heddle/base/error.hpp>
#include <heddle/base/printable.hpp>

#include <doctest/doctest.h>

#include <string>
#include <string_view>

using namespace heddle;

TEST_CASE("printable leaves text as it is") {
    for (char const* text : {"", "layers.0.weight",
                             "Gr\xc3\xb6\xc3\x9f"
                             "e",
                             "\xe6\xa8\xa1\xe5\x9e\x8b", "\xf0\x9f\xa7\xb6", "\xc2\xa0"}) {
        CHECK(printable(text) == text);
        CHECK(is_utf8(text));
    }
    static_assert(is_utf8("plain") && !is_utf8("\xff"));
}

TEST_CASE("printable has '?' for what moves the cursor or ends a line") {
    CHECK(printable("a\x1b[31mb\nc\td\x7f") == "a?[31mb?c?d?");
    CHECK(printable(std::string_view("a\0b", 3)) == "a?b");
    for (char const* character :
         {"\xc2\x9b", "\xc2\x80", "\xe2\x80\xae", "\xe2\x80\x8f", "\xe2\x81\xa6", "\xe2\x80\xa8"})
        CHECK(printable(character) == "?");
}

TEST_CASE("printable has '?' for every byte that is no UTF-8") {
    struct {
        char const *text, *expected;
    } const cases[] = {
        {"\xff", "?"},      {"a\x80z", "a?z"},       {"\xc3", "?"},           {"\xc3(", "?("},
        {"\xc0\x80", "??"}, {"\xe0\x80\x80", "???"}, {"\xed\xa0\x80", "???"}, {"\xf4\x90\x80\x80", "????"},
        {"\xe6\xa8", "??"}};
    for (auto const& c : cases) {
        CHECK(printable(c.text) == c.expected);
        CHECK_FALSE(is_utf8(c.text));
    }
}

TEST_CASE("printable cuts long text, between characters") {
    CHECK(printable("abcdef", 6) == "abcdef");
    CHECK(printable("abcdefg", 6) == "abcdef...");
    CHECK(printable("abcd\xc3\xa4", 5) == "abcd...");
    CHECK(printable(std::string(100'000, 'x')).size() == 163);
}

TEST_CASE("an error's message is one printable line that begins and ends as it was") {
    CHECK(std::string(input_error("a\nb", std::string("c\0d", 3)).what()) == "a?b: c?d");
    std::string const message = input_error("operator '" + std::string(100'000, 'x') + "'", "expected another").what();
    CHECK(message.size() < 1300);
    CHECK(message.starts_with("operator 'xxx"));
    CHECK(message.ends_with("xxx': expected another"));
}
