import Glibc

/// What a variable of the environment is set to.
enum EnvironmentVariable {
    /// Nil also where it is set to nothing.
    static func value(_ name: String) -> String? {
        guard let value = unsafe getenv(name), unsafe value.pointee != 0 else { return nil }
        return unsafe String(cString: value)
    }
}
