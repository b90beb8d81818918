package dsn

import (
	"crypto/tls"
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"testing"
)

// TestVerifyCA: the chain counts, the name does not.
func TestVerifyCA(t *testing.T) {
	server := httptest.NewUnstartedServer(nil)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	own := filepath.Join(t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(own, block, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		params string
		name   string
		ok     bool
	}{
		{"ssl-ca=" + url.QueryEscape(own), "elsewhere", true},
		{"ssl-mode=VERIFY_CA&ssl-ca=" + url.QueryEscape(own), "elsewhere", true},
		{"ssl-mode=VERIFY_CA", "elsewhere", false},
		{"ssl-mode=VERIFY_IDENTITY&ssl-ca=" + url.QueryEscape(own), "elsewhere", false},
		{"ssl-mode=VERIFY_IDENTITY&ssl-ca=" + url.QueryEscape(own), "example.com", true},
		{"ssl-mode=REQUIRED", "elsewhere", true},
	} {
		params, err := url.ParseQuery(tt.params)
		if err != nil {
			t.Fatal(err)
		}
		cfg, _, err := mysqlTLS(params)
		if err != nil {
			t.Fatal(err)
		}
		cfg.ServerName = tt.name
		conn, err := tls.DialWithDialer(&net.Dialer{}, "tcp", server.Listener.Addr().String(), cfg)
		if (err == nil) != tt.ok {
			t.Errorf("%s, %s: %v", tt.params, tt.name, err)
		}
		if err == nil {
			_ = conn.Close()
		}
	}
}
