package dsn

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
)

// mysqlTLS takes the parameters of MySQL's own clients out of params and makes
// of them what the driver understands; nil if there are none. fallback says that
// a server without TLS is taken, too.
func mysqlTLS(params url.Values) (cfg *tls.Config, fallback bool, err error) {
	take := func(names ...string) string {
		v := ""
		for _, n := range names {
			if params.Has(n) {
				v = params.Get(n)
				params.Del(n)
			}
		}
		return v
	}
	mode := strings.ToUpper(take("ssl-mode", "sslmode", "ssl_mode"))
	ca := take("ssl-ca", "sslca", "ssl_ca")
	cert := take("ssl-cert", "sslcert", "ssl_cert")
	key := take("ssl-key", "sslkey", "ssl_key")
	if mode == "" && ca == "" && cert == "" && key == "" {
		return nil, false, nil
	}
	if params.Has("tls") {
		return nil, false, errors.New("dsn: tls=… and ssl-…=… are both there: write one of them")
	}
	if mode == "" {
		mode = "PREFERRED"
		if ca != "" {
			mode = "VERIFY_CA" // as MySQL's own clients do
		}
	}
	cfg = &tls.Config{}
	switch strings.ReplaceAll(mode, "-", "_") {
	case "DISABLED", "DISABLE":
		return nil, false, nil
	case "PREFERRED", "PREFER":
		cfg.InsecureSkipVerify, fallback = true, true
	case "REQUIRED", "REQUIRE":
		cfg.InsecureSkipVerify = true
	case "VERIFY_CA":
		// The chain is verified, the name is not: Go has no switch for that.
		cfg.InsecureSkipVerify = true
		cfg.VerifyConnection = func(s tls.ConnectionState) error { return verifyChain(cfg.RootCAs, s) }
	case "VERIFY_IDENTITY", "VERIFY_FULL":
	default:
		return nil, false, errors.New("dsn: ssl-mode is one of DISABLED, PREFERRED, REQUIRED, VERIFY_CA, VERIFY_IDENTITY")
	}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, false, fmt.Errorf("dsn: ssl-ca: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, false, errors.New("dsn: ssl-ca: the file has no certificate in PEM form")
		}
	}
	if (cert == "") != (key == "") {
		return nil, false, errors.New("dsn: ssl-cert and ssl-key go together: write both")
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, false, fmt.Errorf("dsn: ssl-cert and ssl-key: %w", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, fallback, nil
}

func verifyChain(roots *x509.CertPool, s tls.ConnectionState) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("the server sent no certificate")
	}
	between := x509.NewCertPool()
	for _, c := range s.PeerCertificates[1:] {
		between.AddCert(c)
	}
	_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between})
	return err
}
