package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// contextName is the one cluster, user and context of every kubeconfig in here.
const contextName = "localcluster"

// mastersGroup may do everything, whatever RBAC says: a cluster without any rule
// still has somebody to make the first.
const mastersGroup = "system:masters"

func (f *folder) serverURL() string {
	return "https://" + net.JoinHostPort(loopback, strconv.Itoa(f.Port))
}

// userKubeconfig is where the kubeconfig of a user lies. User names may have
// slashes and colons; file names may not.
func (f *folder) userKubeconfig(name string) string {
	return filepath.Join(f.path, "users", url.PathEscape(name)+".kubeconfig")
}

// writeKubeconfig signs a certificate for u and writes a kubeconfig with it,
// complete in one file.
func (f *folder) writeKubeconfig(p *pki, path string, u user) error {
	if err := mayOverwrite(path); err != nil {
		return err
	}
	pair, err := p.client(u)
	if err != nil {
		return err
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
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("writing the kubeconfig of %q: %w", u.Name, err)
	}
	return nil
}

// mayOverwrite refuses to replace a kubeconfig that is not ours: --kubeconfig
// ~/.kube/config would cost somebody the way to all their clusters.
func mayOverwrite(path string) error {
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
			return fmt.Errorf("the kubeconfig %s has a context %q that localcluster did not make, %s", path, name, advice)
		}
	}
	if len(existing.Contexts) == 0 && fileSize(path) > 0 {
		return fmt.Errorf("the kubeconfig %s is not one that localcluster made, %s", path, advice)
	}
	return nil
}

func fileSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}
