find_package(nlohmann_json 3.11 QUIET)
find_package(ZLIB QUIET)
set(heddle_json_dependencies nlohmann_json::nlohmann_json ZLIB::ZLIB)
