import Hummingbird
import HummingbirdCore

#if TLS
    internal import HummingbirdTLS
#endif

/// The paths of the server's certificate and its private key, as PEM files.
public struct CertificateFiles: Hashable, Sendable {
    /// The server's certificate, followed by the intermediate certificates.
    public var chain: String
    /// The private key of the server's certificate. Must be readable by the collector.
    public var key: String

    /// Creates one from two paths. The files are read when the collector is created.
    public init(chain: String, key: String) { (self.chain, self.key) = (chain, key) }
}

extension HTTPServerBuilder {
    /// Makes the server use TLS 1.2 or newer if it has a certificate. The files are read once, now.
    ///
    /// - Throws: If the files cannot be used, or if the collector was built without TLS.
    func encrypted(by files: CertificateFiles?) throws(CollectorError) -> HTTPServerBuilder {
        guard let files else { return self }
        return try encrypted(files)
    }

    #if TLS
        private func encrypted(_ files: CertificateFiles) throws(CollectorError) -> HTTPServerBuilder {
            do {
                let chain = try NIOSSLCertificate.fromPEMFile(files.chain)
                var configuration = TLSConfiguration.makeServerConfiguration(
                    certificateChain: chain.map { .certificate($0) },
                    privateKey: .privateKey(try NIOSSLPrivateKey(file: files.key, format: .pem))
                )
                configuration.minimumTLSVersion = .tlsv12
                configuration.applicationProtocols = ["http/1.1"]
                return try .tls(self, tlsConfiguration: configuration)
            } catch {
                throw CollectorError(
                    "the certificate \(files.chain), or its key \(files.key), cannot be used: \(error)"
                )
            }
        }
    #else
        private func encrypted(_: CertificateFiles) throws(CollectorError) -> HTTPServerBuilder {
            throw CollectorError(
                "this collector was built without TLS: build it with '--traits TLS', or let a proxy do it"
            )
        }
    #endif
}
