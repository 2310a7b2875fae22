package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/evenkeel-go/evenkeel/dev/bench/internal/apiserver"
)

// serveCommand is the argument that makes this program the API server: it is a process of its own, so that its CPU time
// and memory are not counted for a program.
const serveCommand = "serve"

// seed makes every run use the same objects.
const seed = 20261120

// serving is the line that the API server prints when it is ready.
type serving struct {
	URL            string             `json:"url"`
	BytesPerObject map[string]float64 `json:"bytesPerObject"`
}

// serve runs the API server until its standard input or ctx ends.
func serve(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet(serveCommand, flag.ContinueOnError)
	kind := flags.String("kind", "pods", "pods or databases")
	n := flags.Int("n", 1000, "number of objects")
	formats := flags.String("formats", "json", "formats to encode them in beforehand, separated by commas")
	useTLS := flags.Bool("tls", false, "HTTPS")
	if err := flags.Parse(args); err != nil {
		return err
	}
	debug.SetGCPercent(20) // a million Pods are 5 GB, nearly all of it kept
	ready := serving{BytesPerObject: make(map[string]float64)}
	var list []apiserver.Format
	for name := range strings.SplitSeq(*formats, ",") {
		list = append(list, apiserver.Format(name))
	}
	api, err := apiserver.New(*kind, *n, seed, list...)
	if err != nil {
		return err
	}
	for _, f := range list {
		if ready.BytesPerObject[string(f)], err = api.BytesPerObject(f); err != nil {
			return err
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	ready.URL = "http://" + listener.Addr().String()
	server := &http.Server{Handler: api, ReadHeaderTimeout: 10 * time.Second}
	if *useTLS {
		certificate, err := selfSigned()
		if err != nil {
			return err
		}
		server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
		ready.URL = "https://" + listener.Addr().String()
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() { // ends with the process
		_, _ = io.Copy(io.Discard, os.Stdin) // until the orchestrator closes it, or is gone
		stop()
	}()
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := json.NewEncoder(os.Stdout).Encode(ready); err != nil {
		return err
	}
	if *useTLS {
		err = server.ServeTLS(listener, "", "")
	} else {
		err = server.Serve(listener)
	}
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("serve: %w", err)
}

func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}
