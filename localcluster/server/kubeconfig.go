package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// contextName is the name of the cluster, user and context in every kubeconfig of this package.
const contextName = "localcluster"

// mastersGroup bypasses RBAC, because a new cluster has no rules and someone must create the first ones.
const mastersGroup = "system:masters"

func (f *folder) serverURL() string { return urlOf(f.Port) }

func urlOf(port int) string { return "https://" + net.JoinHostPort(loopback, strconv.Itoa(port)) }

// userKubeconfig returns the path of a user's kubeconfig. User names may contain slashes and colons, which file names
// must not.
func (f *folder) userKubeconfig(name string) string {
	return filepath.Join(f.path, "users", url.PathEscape(name)+".kubeconfig")
}

// kubeconfigFor signs a certificate for u and returns a self-contained kubeconfig.
func (f *folder) kubeconfigFor(p *pki, u user) ([]byte, error) {
	pair, err := p.client(u)
	if err != nil {
		return nil, err
	}
	config := clientcmdapi.NewConfig()
	config.CurrentContext = contextName
	config.Clusters[contextName] = &clientcmdapi.Cluster{
		Server: f.serverURL(), CertificateAuthorityData: p.ca.certPEM,
	}
	config.AuthInfos[contextName] = &clientcmdapi.AuthInfo{
		ClientCertificateData: pair.certPEM, ClientKeyData: pair.keyPEM,
	}
	config.Contexts[contextName] = &clientcmdapi.Context{Cluster: contextName, AuthInfo: contextName}
	content, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("encoding the kubeconfig of %q: %w", u.Name, err)
	}
	return content, nil
}

// writeKubeconfig writes a new kubeconfig for u to path.
func (f *folder) writeKubeconfig(p *pki, path string, u user) error {
	content, err := f.kubeconfigFor(p, u)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("making the folder for the kubeconfig of %q: %w", u.Name, err)
	}
	if err := writePrivate(path, content); err != nil {
		return fmt.Errorf("writing the kubeconfig of %q: %w", u.Name, err)
	}
	return nil
}

// moveUsers sets the port of this run in the kubeconfigs of users from earlier runs.
func (f *folder) moveUsers() error {
	paths, _ := filepath.Glob(filepath.Join(f.path, "users", "*.kubeconfig"))
	for _, path := range paths {
		config, err := clientcmd.LoadFromFile(path)
		if err != nil {
			return fmt.Errorf("reading the kubeconfig of a user: %w", err)
		}
		cluster := config.Clusters[contextName]
		if cluster == nil || cluster.Server == f.serverURL() {
			continue
		}
		cluster.Server = f.serverURL()
		content, err := clientcmd.Write(*config)
		if err == nil {
			err = writePrivate(path, content)
		}
		if err != nil {
			return fmt.Errorf("writing the new port into %s: %w", path, err)
		}
	}
	return nil
}

// mayOverwrite returns an error for a kubeconfig that localcluster did not create (--kubeconfig ~/.kube/config would
// destroy the access to other clusters), and for one of another localcluster that still runs. authority is this
// cluster's own certificate.
func mayOverwrite(ctx context.Context, path string, authority []byte) error {
	existing, err := clientcmd.LoadFromFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	const advice = "so it is not replaced: choose another --kubeconfig"
	if err != nil {
		return fmt.Errorf("the file %s exists and is not a kubeconfig, %s: %w", path, advice, err)
	}
	for name := range existing.Contexts {
		if name != contextName {
			return fmt.Errorf("the kubeconfig %s has a context %q that localcluster did not make, %s", path, name,
				advice)
		}
	}
	if len(existing.Contexts) == 0 && fileSize(path) > 0 {
		return fmt.Errorf("the kubeconfig %s is not one that localcluster made, %s", path, advice)
	}
	other := existing.Clusters[contextName]
	if other != nil && !bytes.Equal(other.CertificateAuthorityData, authority) && answers(ctx, other) {
		return fmt.Errorf("the kubeconfig %s belongs to another localcluster, which runs at %s, %s", path, other.Server,
			advice)
	}
	return nil
}

// answers reports whether the server of a kubeconfig runs, and not another server on the same port.
func answers(ctx context.Context, cluster *clientcmdapi.Cluster) bool {
	address, isHTTPS := strings.CutPrefix(cluster.Server, "https://")
	authorities := x509.NewCertPool()
	if !isHTTPS || !authorities.AppendCertsFromPEM(cluster.CertificateAuthorityData) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12}}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

func fileSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}
