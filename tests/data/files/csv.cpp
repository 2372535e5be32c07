// CSV tables: what the grammar allows, exact numbers, categories, and errors that name the place.
#include "firn/data/csv.h"

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "data/files.h"
#include "data/loader_sets.h"
#include "firn/data/dataset.h"
#include "firn/data/loader.h"
#include "firn/firn.h"
#include "support/matchers.h"
#include "support/values.h"

using namespace firn;
using namespace firn::test;
using data::CsvOptions;
using data::CsvTable;
using data::CsvType;
using firn::testing::Rng;
using firn::testing::values_of;

namespace {

using Texts = std::vector<std::string>;
using Ints = std::vector<std::int64_t>;

CsvTable table_of(const Bytes& bytes, CsvOptions options = {}) {
  const TempFolder folder;
  return CsvTable(write_file(folder.file("t.csv"), bytes), std::move(options));
}

/// The message of the error that `fn(table)` throws for a table, or the making of it; with PATH for
/// the path.
template <class Fn>
std::string error_of(const Bytes& bytes, Fn&& fn, CsvOptions options = {}) {
  const TempFolder folder;
  const std::string path = write_file(folder.file("t.csv"), bytes);
  try {
    fn(CsvTable(path, std::move(options)));
  } catch (const Error& e) {
    std::string text = e.what();
    const std::size_t at = text.find(path);
    CHECK(text.find('\n') == std::string::npos);
    return at == std::string::npos ? text : text.replace(at, path.size(), "PATH");
  }
  return "no error";
}

std::string error_of(const Bytes& bytes, CsvOptions options = {}) {
  return error_of(
      bytes, [](const CsvTable&) {}, std::move(options));
}

/// The fields of all columns by rows.
std::vector<Texts> rows_of(const CsvTable& table) {
  std::vector<Texts> rows(static_cast<std::size_t>(table.rows()));
  for (const std::string& name : table.names()) {
    const Texts column = table.text(name);
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i].push_back(column[i]);
  }
  return rows;
}

const Bytes kHouses =
    "area,rooms,town,price\n"
    "51.5,2,Ulm,120000\n"
    "80,3,\"Bad Aibling, Süd\",245000.5\r\n"
    "33,1,Ulm,99000\n";

}  // namespace

TEST_CASE("CSV: columns become tensors", "[host]") {
  for (const Bytes& bytes : {kHouses, gzip(kHouses), "\xef\xbb\xbf" + kHouses}) {
    const CsvTable table = table_of(bytes);
    CHECK(table.rows() == 3);
    CHECK(table.names() == Texts{"area", "rooms", "town", "price"});
    const Tensor x = table.numbers({"area", "rooms"});
    CHECK(x.shape() == Shape{3, 2});
    CHECK(x.dtype() == f32);
    CHECK(values_of(x) == std::vector<double>{51.5, 2, 80, 3, 33, 1});
    CHECK(table.numbers({"rooms"}, i32).to_vector<int>() == std::vector<int>{2, 3, 1});
    CHECK(table.column("price", f64).to_vector<double>() ==
          std::vector<double>{120000, 245000.5, 99000});
    CHECK(table.levels("town") == Texts{"Bad Aibling, Süd", "Ulm"});
    CHECK(table.categories("town").to_vector<std::int64_t>() == Ints{1, 0, 1});
    CHECK(table.text("town") == Texts{"Ulm", "Bad Aibling, Süd", "Ulm"});
    CHECK(table.type("area") == CsvType::number);
    CHECK(table.type("rooms") == CsvType::integer);
    CHECK(table.type("town") == CsvType::text);
  }
}

TEST_CASE("CSV: a part of the columns, other separators, no header", "[host]") {
  const CsvTable part = table_of(kHouses, {.columns = {"price", "area"}});
  CHECK(part.names() == Texts{"price", "area"});
  CHECK(values_of(part.numbers()) == std::vector<double>{120000, 51.5, 245000.5, 80, 99000, 33});
  CHECK(error_of(kHouses, [](const CsvTable& t) { t.text("town"); }, {.columns = {"area"}}) ==
        "[CsvTable] PATH has no column \"town\"; hint: it has \"area\"");
  const CsvTable tabs = table_of("1\t2,5\n3\t\"4\t5\"\n", {.separator = '\t', .header = false});
  CHECK(tabs.names() == Texts{"0", "1"});
  CHECK(rows_of(tabs) == std::vector<Texts>{{"1", "2,5"}, {"3", "4\t5"}});
  CHECK(table_of("a;b\n1;2\n", {.separator = ';'}).column("b").item() == 2);
  const CsvTable none = table_of("a,b\n");
  CHECK(none.rows() == 0);
  CHECK(none.numbers().shape() == Shape{0, 2});
  CHECK(none.categories("a").shape() == Shape{0});
  CHECK(none.type("a") == CsvType::text);
}

TEST_CASE("CSV: quotes, line ends and empty lines", "[host]") {
  const std::pair<Bytes, std::vector<Texts>> cases[] = {
      {"a,b\n1,2", {{"1", "2"}}},
      {"a,b\r\n1,2\r\n", {{"1", "2"}}},
      {"\n\r\na,b\n\n1,2\r\n\r\n", {{"1", "2"}}},
      {"a,b\n,\n", {{"", ""}}},
      {"a,b\n1,", {{"1", ""}}},
      {"\"a\",\"b\"\n\"x\"\"y\",\"\"\n", {{"x\"y", ""}}},
      {"a,b\n\"\"\"\",\"\"\"\"\"\"\n", {{"\"", "\"\""}}},
      {"a,b\n\"1\n2\r\n3\", x \n", {{"1\n2\r\n3", " x "}}},
      {"a\n\"\"\n\nb\n", {{""}, {"b"}}},
      {",b\n1,2\n", {{"1", "2"}}},  // as pandas names an index
  };
  for (const auto& [bytes, want] : cases) {
    CAPTURE(bytes);
    CHECK(rows_of(table_of(bytes)) == want);
  }
}

TEST_CASE("CSV: whatever is written with quotes comes back, also over the edge of a buffer",
          "[host]") {
  Rng rng(5);
  const std::string alphabet = "ab,\"\n\r;\t 0\xc3\xa9";
  for (int round = 0; round < 30; ++round) {
    const std::int64_t width = 1 + rng.below(4);
    std::vector<Texts> want;
    Bytes bytes;
    for (std::int64_t i = 0; i < width; ++i) bytes += (i > 0 ? ",c" : "c") + std::to_string(i);
    bytes += "\n";
    while (bytes.size() < (round == 0 ? 300'000u : 500u)) {
      Texts row;
      for (std::int64_t i = 0; i < width; ++i) {
        std::string field;
        for (std::int64_t n = rng.below(round == 0 ? 400 : 6); n > 0; --n)
          field += alphabet[static_cast<std::size_t>(rng.below(12))];
        row.push_back(field);
        const bool plain =
            width > 1 && field.find_first_of(",\"\n\r") == std::string::npos && rng.below(2) == 0;
        std::string written;
        for (const char c : field) written += c == '"' ? "\"\"" : std::string(1, c);
        bytes += (i > 0 ? "," : "") + (plain ? field : "\"" + written + "\"");
      }
      bytes += rng.below(2) == 0 ? "\n" : "\r\n";
      want.push_back(row);
    }
    REQUIRE(rows_of(table_of(round % 2 == 0 ? bytes : gzip(bytes))) == want);
  }
}

TEST_CASE("CSV: numbers are exact, rounded once", "[host]") {
  const double inf = std::numeric_limits<double>::infinity();
  const auto column = [](const std::string& text, DType dtype) {
    return table_of("x\n" + text + "\n").column("x", dtype);
  };
  const std::pair<const char*, double> cases[] = {
      {"0.1", 0.1},
      {"+2.5", 2.5},
      {" -7e-3\t", -7e-3},
      {"\"12\"", 12},
      {".5", 0.5},
      {"5.", 5},
      {"4.9e-324", 4.9e-324},
      {"1.7976931348623157e308", 1.7976931348623157e308},
      {"inf", inf},
      {"-Infinity", -inf},
      {"1e-400", 0},
      {"0.00001e-320", 0},
      {"1e-99999999999999999999", 0},
      {"9007199254740993", 9007199254740992}};
  for (const auto& [text, want] : cases) {
    CAPTURE(text);
    CHECK(column(text, f64).item() == want);
  }
  CHECK(std::isnan(column("nan", f64).item()));
  CHECK(column("1e-60", f32).item() == 0);
  // By way of f64 this would be rounded twice, to 1.
  CHECK(column("1.00000005960464478", f32).data<float>()[0] == std::nextafter(1.0f, 2.0f));
  CHECK(column("9223372036854775807", i64).data<std::int64_t>()[0] ==
        std::numeric_limits<std::int64_t>::max());
  CHECK(column("-2147483648", i32).data<std::int32_t>()[0] ==
        std::numeric_limits<std::int32_t>::min());
}

TEST_CASE("CSV: bad numbers are named with line, column and field", "[host]") {
  const auto bad = [](const Bytes& bytes, DType dtype = f32, CsvOptions options = {}) {
    return error_of(
        bytes, [&](const CsvTable& t) { t.numbers({}, dtype); }, std::move(options));
  };
  CHECK(bad("area,rooms\n1,2\n3,4x\n") ==
        "[CsvTable] PATH: line 3, column \"rooms\": \"4x\" is no number; hint: read texts with "
        "categories() or text(); if it means that there is no value, name it in "
        "CsvOptions::missing_texts");
  CHECK(error_of("a,b\n\"1\n\",2\n3,\n", [](const CsvTable& t) { t.column("b"); }) ==
        "[CsvTable] PATH: line 4, column \"b\": the field is empty; hint: set CsvOptions::missing "
        "to the number that empty fields stand for");
  CHECK(
      bad("a\n1e39\n") ==
      "[CsvTable] PATH: line 2, column \"a\": \"1e39\" is out of the range of f32; hint: read the "
      "column as f64 or i64");
  CHECK_THAT(bad("a\n1e999\n", f64), contains("\"1e999\" is out of the range of f64"));
  CHECK_THAT(bad("a\n1e9223372036854775807\n", f64), contains("out of the range"));
  CHECK_THAT(bad("a\n2147483648\n", i32), contains("\"2147483648\" is out of the range of i32"));
  CHECK_THAT(bad("a\n4.0\n", i64), contains("\"4.0\" is no integer"));
  CHECK_THAT(bad("a\n1\x1b[2J\n"), contains("\"1\\x1b[2J\" is no number"));
  CHECK_THAT(bad("a\n" + Bytes(300, 'z') + "\n"), contains("...\" (300 bytes) is no number"));
  for (const char* text : {"0x10", "1,5", "--1", "+-1", "1 2", "1e", "e5", ".", "one"})
    CHECK_THAT(bad(std::string("a\n\"") + text + "\"\n", f64), contains("is no number"));
  CHECK_THAT(bad("a\n1\n", f16), contains("read as f32, f64, i32 or i64, not f16"));
  const CsvTable table = table_of("a,b\n1,\n ,2\n", {.missing = -1});
  CHECK(values_of(table.numbers()) == std::vector<double>{1, -1, -1, 2});
  CHECK(table.numbers({}, i64).to_vector<int>() == std::vector<int>{1, -1, -1, 2});
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(std::isnan(table_of("a,b\n,1\n", {.missing = nan}).column("a").item()));
  for (const double missing : {nan, 0.5, 9223372036854775808.0})
    CHECK_THAT(bad("a\n1\n", i64, {.missing = missing}), contains("which is not a number of i64"));
  for (const double missing : {1e300, -3.5e38})
    CHECK_THAT(bad("a\n1\n", f32, {.missing = missing}), contains("which f32 cannot hold"));
  CHECK(table_of("a,b\n,1\n", {.missing = 1e300}).column("a", f64).item() == 1e300);
  CHECK(std::isinf(table_of("a,b\n,1\n", {.missing = INFINITY}).column("a", f32).item()));
}

TEST_CASE("CSV: texts that stand for no value", "[host]") {
  const Bytes bytes = "a,b\n NA ,x\n2,NA\n-999,\n\"?\",-\n";
  const CsvTable table =
      table_of(bytes, {.missing = 0.5, .missing_texts = {"NA", " ? ", "-999", "na"}});
  CHECK(values_of(table.column("a")) == std::vector<double>{0.5, 2, 0.5, 0.5});
  CHECK(table.type("a") == CsvType::integer);
  CHECK(table.type("b") == CsvType::text);
  CHECK(table.text("a") == Texts{" NA ", "2", "-999", "?"});
  CHECK(table.levels("b") == Texts{"", "-", "NA", "x"});
  CHECK(table_of("a\nNA\n", {.missing_texts = {"NA"}}).type("a") == CsvType::text);
  CHECK(table_of("a\nnan\n1\n", {.missing = 3, .missing_texts = {"nan"}}).type("a") ==
        CsvType::integer);
  const auto read = [](const CsvTable& t) { t.column("a"); };
  CHECK(error_of(bytes, read, {.missing_texts = {"NA"}}) ==
        "[CsvTable] PATH: line 2, column \"a\": \"NA\" is one of the missing_texts; hint: set "
        "CsvOptions::missing to the number that empty fields stand for");
  // As a whole field alone, and letter by letter.
  for (const char* text : {"Na", "NAN.", "N", "1NA"})
    CHECK_THAT(
        error_of(std::string("a\n") + text + "\n", read, {.missing = 0, .missing_texts = {"NA"}}),
        contains("is no number"));
}

TEST_CASE("CSV: a file in pieces has the rows of the whole", "[host]") {
  Bytes bytes = "x,name\n";
  for (int i = 0; i < 100; ++i) bytes += std::to_string(i) + (i % 3 == 0 ? ",\"a\nb\"\n" : ",c\n");
  const TempFolder folder;
  for (const Bytes& content : {bytes, gzip(bytes)}) {
    const std::string path = write_file(folder.file("t.csv"), content);
    const CsvTable whole(path);
    for (const std::int64_t rows : {1, 7, 50, 99, 100, 101}) {
      std::vector<double> numbers;
      Texts names;
      std::vector<CsvTable> tables;
      data::read_csv_pieces(path, rows, [&](const CsvTable& t) { tables.push_back(t); });
      CHECK(static_cast<std::int64_t>(tables.size()) == (100 + rows - 1) / rows);
      for (const CsvTable& table : tables) {
        CHECK((table.rows() == rows || &table == &tables.back()));
        CHECK(table.names() == whole.names());
        for (const double v : values_of(table.column("x"))) numbers.push_back(v);
        for (const std::string& text : table.text("name")) names.push_back(text);
      }
      CHECK(numbers == values_of(whole.column("x")));
      CHECK(names == whole.text("name"));
    }
  }
  int calls = 0;
  const auto count = [&](const CsvTable&) { ++calls; };
  data::read_csv_pieces(write_file(folder.file("e.csv"), "a,b\n"), 3, count);
  CHECK(calls == 0);
  data::read_csv_pieces(write_file(folder.file("n.csv"), "1,2\n3,4\n"), 3, count,
                        {.header = false});
  CHECK(calls == 1);
  CHECK_THROWS_WITH(data::read_csv_pieces(folder.file("n.csv"), 0, count),
                    contains("a piece cannot have 0 rows"));
  CHECK_THROWS_WITH(data::read_csv_pieces(folder.file("n.csv"), 1, count, {.separator = '"'}),
                    contains("the separator cannot be"));
  CHECK_THROWS_WITH(data::read_csv_pieces(folder.file("n.csv"), 1, count, {.columns = {"z"}}),
                    contains("has no column \"z\""));
  calls = 0;
  const std::string cut = write_file(folder.file("c.csv"), "a,b\n1,2\n3,4\n5\n6,7\n");
  CHECK_THROWS_WITH(data::read_csv_pieces(cut, 1, count), contains("line 4: 1 fields"));
  CHECK(calls <= 2);
  // Numbers are read where they are used: the error has the line of the file.
  const std::string bad = write_file(folder.file("b.csv"), "a\n1\n2\nx\n");
  CHECK_THROWS_WITH(data::read_csv_pieces(bad, 2, [](const CsvTable& t) { t.column("a"); }),
                    contains("line 4, column \"a\""));
}

TEST_CASE("CSV: damaged files are named with line and column", "[host]") {
  CHECK(error_of("") ==
        "[CsvTable] PATH: line 1: the file is empty; hint: expected a row with the names of the "
        "columns");
  CHECK_THAT(error_of("\n\r\n"), contains("the file is empty"));
  CHECK(error_of("a,b,c\n1,2,3\n1,2\n") ==
        "[CsvTable] PATH: line 3: 2 fields, but the header has 3; the last one is \"2\"; hint: put "
        "a field that has a separator in it in quotes");
  CHECK_THAT(error_of("1,2\n1,2,3\n", {.header = false}),
             contains("line 2: 3 fields, but the first row has 2"));
  CHECK(error_of("a,b\n1,\"2\n3,4\n") ==
        "[CsvTable] PATH: line 2, column \"b\": the quote that opens here is not closed; hint: a "
        "quote inside of a field is doubled; the file may be truncated");
  CHECK_THAT(error_of("a,b\n1,5\"\n"), contains("line 2, column \"b\": a quote inside of a field"));
  CHECK_THAT(error_of("a,b\n\"1\"x,5\n"), contains("line 2, column \"a\": text follows the quote"));
  CHECK_THAT(error_of("a,b\n1,2\r3,4\n"), contains("line 2: a carriage return without"));
  CHECK_THAT(error_of("a,b\n1,\"\n\n\n2\"x\n"), contains("line 5, column \"b\": text follows"));
  CHECK_THAT(error_of(Bytes("a\0,\0b\0\n\0", 8)), contains("line 1, column 1: a NUL character"));
  CHECK_THAT(error_of("a,b,a\n"), contains("columns 1 and 3 have the same name: \"a\""));
  CHECK_THAT(error_of("a,b\n", {.columns = {"c"}}),
             contains("PATH has no column \"c\"; hint: it has \"a\", \"b\""));
  CHECK_THAT(error_of("a,b\n", {.columns = {"b", "b"}}), contains("has \"b\" twice"));
  for (const char separator : {'"', '\n', '\r', '\0'})
    CHECK_THAT(error_of("a\n", {.separator = separator}), contains("the separator cannot be"));
  const Bytes damaged = gzip(kHouses).substr(0, 60);
  CHECK_THAT(error_of(damaged), contains("truncated gzip data"));
  CHECK_THROWS_AS(CsvTable("/no/such/file.csv"), IoError);
}

TEST_CASE("CSV: every truncation of a gzip file is an error", "[host]") {
  const Bytes whole = gzip(kHouses);
  const TempFolder folder;
  for (const char* name : {"t.csv.gz", "t.csv"})
    for (std::size_t n = 0; n < whole.size(); ++n) {
      INFO("first " << n << " of " << whole.size() << " bytes, as " << name);
      const std::string path = write_file(folder.file(name), whole.substr(0, n));
      const std::string said =
          n == 0 && path.ends_with(".csv") ? "the file is empty" : "truncated gzip data: the file ";
      CHECK_THROWS_WITH(CsvTable(path), contains(said));
    }
  // By its content, a file with such a name can be plain all the same.
  CHECK(CsvTable(write_file(folder.file("t.csv.gz"), "a\n1\n")).rows() == 1);
  CHECK(table_of("a").names() == Texts{"a"});
}

TEST_CASE("CSV: fields and rows have a largest size", "[host]") {
  const Bytes mega(1 << 20, 'x');
  CHECK(table_of("a\n" + mega + "\n").text("a")[0] == mega);
  CHECK_THAT(error_of("a\n1\n" + mega + "x\n"),
             contains("line 3, column \"a\": a field of more than 1048576 bytes"));
  CHECK_THAT(error_of("a,b\n1,\"" + mega + "\"\"\"\n"),
             contains("line 2, column \"b\": a field of more than 1048576 bytes"));
  Bytes row;
  for (int i = 0; i < 17; ++i) row += mega + ",";
  CHECK_THAT(error_of(row, {.header = false}), contains("line 1: a row of more than 16777216"));
  CHECK_THAT(error_of(Bytes(1 << 17, ',')), contains("line 1: more than 65536 fields"));
}

TEST_CASE("CSV: levels of another table", "[host]") {
  const CsvTable train = table_of("y\nb\nc\na\nb\n"), test = table_of("y\nc\nb\n");
  CHECK(test.categories("y", train.levels("y")).to_vector<std::int64_t>() == Ints{2, 1});
  CHECK(error_of("y\na\nd\n", [&](const CsvTable& t) { t.categories("y", train.levels("y")); }) ==
        "[CsvTable] PATH: line 3, column \"y\": \"d\" is none of the 3 levels; hint: take the "
        "levels of a table that has every text");
  CHECK_THROWS_AS(test.categories("y", {"b", "c", "b"}), Error);
}

TEST_CASE("CSV: a table that was moved away says so, and copies share", "[host]") {
  CsvTable table = table_of(kHouses);
  const CsvTable copy = table, moved = std::move(table);
  CHECK(copy.rows() == moved.rows());
  CHECK_THROWS_AS(table.rows(), Error);  // NOLINT: that is what is tested
}

TEST_CASE("CSV: from a table to the batches of a loader", "[host]") {
  Bytes bytes = "x,z,label\n";
  for (int i = 0; i < 203; ++i)
    bytes += std::to_string(i) + "," + std::to_string(0.5 * i) + "," + (i % 3 == 0 ? "no" : "yes") +
             "\n";
  const CsvTable table = table_of(gzip(bytes));
  const data::TensorDataset set({table.numbers({"x", "z"}), table.categories("label")});
  const auto loader_of = [&](int workers) {
    return data::Loader(set, {.batch = 10, .shuffle = true, .seed = 2, .workers = workers});
  };
  data::Loader plain = loader_of(0), threaded = loader_of(3);
  for (const auto& batch : plain.epoch(0))
    for (std::int64_t i = 0; i < batch.size(); ++i) {
      const double id = batch.ids[i].item();
      CHECK(values_of(batch.x()[i]) == std::vector<double>{id, 0.5 * id});
      CHECK(batch.y()[i].item() == (static_cast<int>(id) % 3 == 0 ? 0 : 1));
    }
  CHECK(hash_of(threaded, 1) == hash_of(plain, 1));
  plain.seek({1, 50});
  threaded.seek({1, 50});
  CHECK(hash_of(threaded, 1) == hash_of(plain, 1));
}

TEST_CASE("CSV: every file that ends early is a shorter table or an error", "[host]") {
  const Bytes whole = "a,b\n\"1\",2\r\n\"x,\"\"y\",3\n";
  for (std::size_t n = 0; n < whole.size(); ++n) {
    CAPTURE(n);
    const std::string text = error_of(whole.substr(0, n));
    if (text == "no error")
      CHECK(table_of(whole.substr(0, n)).rows() <= 2);
    else
      CHECK_THAT(text, contains("[CsvTable] PATH: line "));
  }
  const Bytes packed = gzip(whole);
  for (std::size_t n = 2; n < packed.size(); ++n)  // one byte is not yet gzip
    CHECK_THAT(error_of(packed.substr(0, n)), contains("gzip data"));
}
