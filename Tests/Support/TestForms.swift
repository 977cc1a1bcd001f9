import Glibc
public import Testing

/// A variable of the environment. Nil if it is not set.
func testEnvironment(_ name: String) -> String? {
    unsafe getenv(name).map { unsafe String(cString: $0) }
}

/// Whether the long forms of tests are wanted: `scripts/test --all`.
public let testsAllForms = testEnvironment("TEST_ALL") != nil

extension Trait where Self == ConditionTrait {
    /// The test is a long form of one that is made on every run.
    public static var longForm: Self { .enabled(if: testsAllForms, "a long form: scripts/test --all") }
}
