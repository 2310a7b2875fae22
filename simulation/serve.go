package simulation

import (
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Serve serves the API on a port of this machine until the end of the test, for programs in other processes such as
// kubectl, and returns the path of a kubeconfig file. Like kube-apiserver, it has TLS and HTTP/2. It cannot be called
// in a bubble: other processes have real time.
func (c *Cluster) Serve() (kubeconfig string) {
	c.tb.Helper()
	if c.virtual {
		c.tb.Fatal("simulation: Serve needs real time: use New outside of Test and of synctest.Test")
	}
	server := httptest.NewUnstartedServer(c.log)
	server.EnableHTTP2 = true
	server.StartTLS()
	c.tb.Cleanup(func() {
		c.server.CloseWatches()
		server.CloseClientConnections()
		server.Close()
	})
	config := clientcmdapi.NewConfig()
	config.Clusters["simulation"] = &clientcmdapi.Cluster{
		Server:                   server.URL,
		CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}
	// A token that the server has not issued has no effect. Without credentials kubectl asks for a name and a password.
	config.AuthInfos["administrator"] = &clientcmdapi.AuthInfo{Token: "administrator"}
	config.Contexts["simulation"] = &clientcmdapi.Context{Cluster: "simulation", AuthInfo: "administrator"}
	config.CurrentContext = "simulation"
	kubeconfig = filepath.Join(c.tb.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		c.tb.Fatalf("simulation: %v", err)
	}
	return kubeconfig
}

// ForwardWebhooks makes the webhook server at an address such as 127.0.0.1:9443 handle the calls of all webhooks, as
// HandleWebhooks does with a handler: for the server of a suite that uses envtest. The server has TLS; its certificate
// is not verified. ForwardWebhooks cannot be called in a bubble: a network has real time.
func (c *Cluster) ForwardWebhooks(address string) {
	c.tb.Helper()
	if c.virtual {
		c.tb.Fatal("simulation: ForwardWebhooks needs real time: use New outside of Test and of synctest.Test")
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // see above
	c.tb.Cleanup(transport.CloseIdleConnections)
	c.HandleWebhooks(&httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "https", address
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			text := fmt.Sprintf("forward a call to the webhook server %s: %v", address, err)
			http.Error(w, text, http.StatusBadGateway)
		},
	})
}

// ServeHTTP implements http.Handler for clients in other processes.
func (l *requestLog) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	res, err := l.RoundTrip(req)
	if err != nil {
		panic(http.ErrAbortHandler) // breaks the connection
	}
	defer res.Body.Close()
	maps.Copy(w.Header(), res.Header)
	w.WriteHeader(res.StatusCode)
	flush := http.NewResponseController(w).Flush
	buffer := make([]byte, 32<<10)
	for {
		if res.ContentLength < 0 {
			_ = flush() // a watch
		}
		n, err := res.Body.Read(buffer)
		if _, writeErr := w.Write(buffer[:n]); writeErr != nil || err != nil {
			if err != nil && err != io.EOF {
				panic(http.ErrAbortHandler)
			}
			return
		}
	}
}
