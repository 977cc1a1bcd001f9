internal import Glibc

extension ReportDirectory {
    /// The environment variable that names the report directory.
    public static let environmentVariable = "STALL_MONITOR_DIRECTORY"

    /// The default directory for writing and reading reports: `$STALL_MONITOR_DIRECTORY`, or otherwise `./stall-reports`.
    ///
    /// Reads the environment: call it before threads that change that.
    public static var defaultPath: String {
        guard let value = unsafe getenv(environmentVariable) else { return "./stall-reports" }
        let path = unsafe String(cString: value)
        return path.isEmpty ? "./stall-reports" : path
    }
}
