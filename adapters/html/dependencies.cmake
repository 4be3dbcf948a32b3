set(heddle_html_dependencies heddle::json)
