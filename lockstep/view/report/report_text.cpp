#include "lockstep/view/report/report_text.h"

#include <fmt/core.h>

#include <algorithm>

namespace lockstep::view {
namespace {

std::string without_controls(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }, ' ');
  return text;
}

std::string line_of_text(const std::string& text) { return without_controls(text) + "\n"; }

std::string remedy_lines(const ReportDocument& document, std::size_t most, const std::string& indent) {
  std::string text;
  for (const ReportDocument::Remedy& remedy : document.remedies) {
    if (most-- == 0) break;
    const std::string gain = remedy.gain.empty() ? "" : remedy.gain + ": ";
    const std::string why = remedy.why.empty() ? "" : remedy.why + ". ";
    text += line_of_text(fmt::format("{}{}{}{}.", indent, gain, why, remedy.text));
  }
  return text;
}

std::string aligned_table(const ReportTable& table) {
  std::vector<std::size_t> widths;
  for (const std::string& column : table.columns) widths.push_back(column.size());
  for (const auto& row : table.rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text = "\n" + line_of_text(table.title);
  const auto add = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (std::size_t i = 0; i < cells.size(); ++i)
      line += i == 0 ? fmt::format("  {:<{}}", cells[i], widths[i])
                     : fmt::format("  {:>{}}", cells[i], widths[i]);
    text += line_of_text(line);
  };
  add(table.columns);
  for (const auto& row : table.rows) add(row);
  if (!table.note.empty()) text += line_of_text("  " + table.note);
  return text;
}

}  // namespace

std::string report_text(const ReportDocument& document) {
  std::string text = line_of_text(document.title) + "\n" + line_of_text(document.sentence);
  if (!document.remedies.empty())
    text += "\nWhat to do, and what it would win\n" + remedy_lines(document, SIZE_MAX, "  ");
  if (!document.failure.empty()) text += "\nWhere each rank was\n";
  for (const std::string& line : document.failure) text += line_of_text("  " + line);
  text += "\n";
  for (const auto& [name, value] : document.facts) text += line_of_text(fmt::format("  {}: {}", name, value));
  for (const ReportTable& table : document.tables) text += aligned_table(table);
  if (!document.notes.empty()) text += "\nWhat is missing\n";
  for (const std::string& note : document.notes) text += line_of_text("  " + note);
  return text;
}

std::string report_summary(const ReportDocument& document, const std::string& speaker) {
  constexpr std::size_t most_remedies = 3;
  std::string text =
      line_of_text(speaker + ": " + document.sentence) + remedy_lines(document, most_remedies, "  ");
  const auto steps =
      std::ranges::find(document.tables, std::string("Where a step goes"), &ReportTable::title);
  if (steps == document.tables.end()) return text;
  std::string parts;
  for (const auto& row : steps->rows) {
    if (row[1] != "0 us") parts += (parts.empty() ? "  a step: " : ", ") + row[0] + " " + row[1];
  }
  return text + line_of_text(parts);
}

}  // namespace lockstep::view
