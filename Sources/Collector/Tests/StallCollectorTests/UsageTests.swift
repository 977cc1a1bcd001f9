import ArgumentParser
import Testing

@testable import stall_collector

/// What the command line says about mistakes in it.
@Suite("Wrong usage")
struct UsageTests {
    private struct Mistake: Equatable {
        /// The first one of the message.
        var line: String
        var code: Int32
    }

    /// Nil if the arguments are right.
    private static func mistake(_ arguments: [String]) -> Mistake? {
        do {
            _ = try ServeCommand.parse(arguments)
            return nil
        } catch {
            let line = ServeCommand.message(for: error).split(separator: "\n").first.map(String.init) ?? ""
            return Mistake(line: line, code: ServeCommand.exitCode(for: error).rawValue)
        }
    }

    @Test(
        "A value that cannot be is wrong usage, and one line says what is expected",
        arguments: [
            (["--proxy", "foo"], "'--proxy': 'foo' is no proxy's IP address, like 10.0.0.1"),
            (["--proxy", "10.0.0.1", "--proxy", "10.0.0.1:80"], "'--proxy': '10.0.0.1:80' is no proxy's IP address"),
            (["--listen", "4319"], "'--listen' is a host and a port, like 127.0.0.1:4319"),
            (["--listen", "localhost:65536"], "'--listen' is a host and a port"),
            (["--listen", "[]:4319", "--tokens", "file"], "'--listen' is a host and a port"),
            (["--listen", "a:b:4319", "--tokens", "file"], "'--listen' is a host and a port"),
            (["--listen", "0.0.0.0:4319"], "without '--tokens' it listens on this machine alone"),
            (["--keep", "59m"], "'--keep' is a length of an hour or more, like 24h or 90d"),
            (["--keep", "month"], "'--keep' is a length of an hour or more, like 24h or 90d"),
            (["--max-size", "9MB"], "'--max-size' is a size of 10MB or more, like 500MB or 20GB"),
            (["--max-size", "1GiB"], "'--max-size' is a size of 10MB or more, like 500MB or 20GB"),
            (["--rate", "0"], "'--rate' is a number of records a second"),
            (["--store", "http://ch1:8123/stalls"], "'--store' is the path of a file, or clickhouse://"),
            (["--store", "clickhouse://ch1:0/stalls"], "'--store': a ClickHouse store is clickhouse://host:port/"),
            (["--tls-key", "key.pem"], "'--tls-certificate' and '--tls-key' belong together"),
        ]
    )
    func values(arguments: [String], expected: String) throws {
        let mistake = try #require(Self.mistake(arguments))
        #expect(mistake.code == ExitCode.validationFailure.rawValue && mistake.line.hasPrefix(expected), "\(mistake)")
    }

    @Test(
        "What is right is accepted",
        arguments: [
            [], ["--proxy", "10.0.0.1", "--proxy", "2001:db8::7"],
            ["--listen", "[::1]:0"], ["--listen", "localhost:1"],
            ["--listen", "[fe80::1%eth0]:4319", "--tokens", "file"],
            ["--listen", "name.example:1", "--tokens", "file"],
        ]
    )
    func right(arguments: [String]) {
        #expect(Self.mistake(arguments) == nil)
    }

    @Test("A word that is no command, also behind 'help', is wrong usage, and it is told which command there is")
    func commands() {
        for words in [["serv"], ["help", "serv"], ["serv", "--listen", "x"]] {
            let mistake = CollectorCommand.unknownCommand(in: words)
            #expect(mistake?.message == "there is no command 'serv'; did you mean 'serve'?", "\(words)")
        }
        for words in [[], ["serve"], ["help"], ["help", "serve"], ["--help"], ["--version"], ["serve", "serv"]] {
            #expect(CollectorCommand.unknownCommand(in: words) == nil, "\(words)")
        }
    }
}
