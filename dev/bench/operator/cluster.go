package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/evenkeel-go/evenkeel/localcluster"
)

// crdFile is the definition of WebApps in the repository. Both operators have the same.
const crdFile = "examples/webapp/api/v1/webapp.example.com_webapps.yaml"

// fieldManager is the driver's name in managedFields.
const fieldManager = "bench-driver"

// revisionKey is the key of spec.config that a change of the config sets.
const revisionKey = "REVISION"

// startCluster starts a cluster with Kubernetes' controllers that serves WebApps. It starts twice on the same data: the
// garbage collector reads the kinds when it starts, and detects a later one only after half a minute.
func startCluster(ctx context.Context, repository, dir string, progress io.Writer) (*localcluster.Cluster, error) {
	definition, err := os.ReadFile(filepath.Join(repository, filepath.FromSlash(crdFile)))
	if err != nil {
		return nil, err
	}
	config := localcluster.Config{Dir: dir, Progress: progress, ReadyTimeout: 3 * time.Minute}
	cluster, err := localcluster.Start(ctx, config)
	if err != nil {
		return nil, err
	}
	err = installCRD(ctx, cluster.RESTConfig(), definition)
	if err := errors.Join(err, cluster.Stop()); err != nil {
		return nil, err
	}
	config.Controllers = true
	return localcluster.Start(ctx, config)
}

// installCRD applies a CustomResourceDefinition and waits until the API server serves it.
func installCRD(ctx context.Context, config *rest.Config, definition []byte) error {
	api, err := newAPI(config)
	if err != nil {
		return err
	}
	defer api.client.CloseIdleConnections()
	const path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/webapps.webapp.example.com"
	if _, err := api.send(ctx, http.MethodPatch, path+"?fieldManager="+fieldManager, "application/apply-patch+yaml",
		definition); err != nil {
		return fmt.Errorf("install the definition of WebApps: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		_, err := api.send(ctx, http.MethodGet, webAppsPath, "", nil)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until WebApps are served: %w", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// api sends the driver's own requests, straight to the API server.
type api struct {
	client *http.Client
	host   string
}

func newAPI(config *rest.Config) (*api, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make the driver's client: %w", err)
	}
	return &api{client: client, host: config.Host}, nil
}

// send sends one request and returns the response's body. A response of 400 or above is an error.
func (a *api) send(ctx context.Context, method, path, contentType string, body []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, a.host+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	request.Header.Set("Accept", "application/json")
	response, err := a.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode >= http.StatusBadRequest {
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, response.Status, text[:min(len(text), 500)])
	}
	return text, nil
}

// count returns the number of objects of a collection with the operators' label.
func (a *api) count(ctx context.Context, path string) (int, error) {
	const label = "?labelSelector=app.kubernetes.io%2Fmanaged-by%3Dwebapp-operator"
	text, err := a.send(ctx, http.MethodGet, path+label, "", nil)
	if err != nil {
		return 0, err
	}
	var list struct{ Items []json.RawMessage }
	if err := json.Unmarshal(text, &list); err != nil {
		return 0, err
	}
	return len(list.Items), nil
}

// writeKubeconfig writes a kubeconfig with the proxy as server.
func writeKubeconfig(path string, p *proxy) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["bench"] = &clientcmdapi.Cluster{
		Server:                   "https://" + p.address,
		CertificateAuthorityData: p.authority,
	}
	config.AuthInfos["bench"] = &clientcmdapi.AuthInfo{Token: "the proxy replaces it"}
	config.Contexts["bench"] = &clientcmdapi.Context{Cluster: "bench", AuthInfo: "bench"}
	config.CurrentContext = "bench"
	return clientcmd.WriteToFile(*config, path)
}
