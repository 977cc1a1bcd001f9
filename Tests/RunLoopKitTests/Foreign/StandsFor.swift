import LoopTestSupport
import Testing

/// Names the cases of other projects' test suites that a test covers. README.md in this folder lists every case of those
/// suites.
struct StandsFor: TestTrait {
    let cases: [String]

    /// Shown when the test fails.
    var comments: [Comment] { cases.map { Comment(rawValue: "stands for \($0)") } }
}

extension Trait where Self == StandsFor {
    /// `Suite.case`, as in README.md.
    static func stands(for cases: String...) -> Self { StandsFor(cases: cases) }
}
