package main

import (
	"crypto/tls"
	"crypto/x509"
	"os"
)

// Security is who the client is where the broker asks: a user of SCRAM-SHA-512, or a certificate; files are PEM.
type Security struct {
	CA          string `json:"ca"`
	Mechanism   string `json:"mechanism"`
	User        string `json:"user"`
	Password    string `json:"password"`
	Certificate string `json:"certificate"`
}

// TLS is what the client trusts, and the certificate that it shows if it has one.
func (s *Security) TLS() (*tls.Config, error) {
	trusted, err := os.ReadFile(s.CA)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(trusted)
	if s.Certificate != "" {
		own, err := tls.LoadX509KeyPair(s.Certificate, s.Certificate)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
}
