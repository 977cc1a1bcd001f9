#if YAML
    import Configuration
    public import StallMonitor
    import SystemPackage

    // Only with the package's trait `YAML`: no server gets a parser of YAML that it did not ask for.
    extension StallMonitor.Configuration {
        /// Reads `file` (YAML) under the environment: a variable wins over the file, the file over the defaults.
        ///
        /// - Parameter file: may be missing.
        /// - Throws: what the file's parser or a value of the wrong form has to say.
        public static func load(file: String = "config/stall-monitor.yaml") async throws -> Self {
            let reader = ConfigReader(providers: [
                EnvironmentVariablesProvider(),
                try await FileProvider<YAMLSnapshot>(filePath: FilePath(file), allowMissing: true),
            ])
            return try await Self(config: reader.scoped(to: "stallMonitor"))
        }
    }
#endif
