package simulation

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	kyaml "sigs.k8s.io/yaml"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/simulation/internal/controllers"
	"github.com/evenkeel-go/evenkeel/simulation/internal/crds"
	"github.com/evenkeel-go/evenkeel/simulation/internal/kinds"
	"github.com/evenkeel-go/evenkeel/simulation/internal/webhooks"
)

// worlds are the prepared servers of this process, by the contents that they were made from. They never change, so that
// tests cannot see each other through them.
var worlds cache //nolint:gochecknoglobals // a cache of immutable values

// cache prepares each server once. The zero value is ready.
type cache struct {
	mu      sync.Mutex
	entries map[string]*world // guarded by mu
	// clusters are the numbers of clusters that exist, by the names of their tests.
	clusters map[string]uint64 // guarded by mu
	// compiler keeps compiled schemas.
	compiler crds.Compiler
}

// number returns how many other clusters a test, and the tests of which it is a subtest, have at present. Tests that
// run in parallel do not change it.
func (c *cache) number(tb testing.TB) (number uint64) {
	tb.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.clusters == nil {
		c.clusters = map[string]uint64{}
	}
	name := tb.Name()
	for i := range len(name) + 1 {
		if i == len(name) || name[i] == '/' {
			number += c.clusters[name[:i]]
		}
	}
	c.clusters[name]++
	tb.Cleanup(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.clusters[name]--; c.clusters[name] == 0 {
			delete(c.clusters, name)
		}
	})
	return number
}

// world is a prepared server, of which each test has a fork.
type world struct {
	once   sync.Once
	server *apiserver.Server
	err    error
}

// newServer returns a server with the built-in kinds and CustomResourceDefinition.
func newServer(compiler *crds.Compiler, config Config) (*apiserver.Server, error) {
	all, err := kinds.All()
	if err != nil {
		return nil, err
	}
	webhooks.AddRules(all)
	return apiserver.New(apiserver.Config{
		Kinds: append(append(all, apiserver.Reviews()...), compiler.Definitions(webhooks.Converter)), Seed: 1,
		NodesExist: !config.WithoutControllers, // those of the scheduler have no objects
	})
}

// get returns the prepared server of config. Those of bubbles are separate, because the timestamps of their objects are
// in virtual time.
func (c *cache) get(config Config, virtual bool) (*world, error) {
	documents, err := read(config)
	if err != nil {
		return nil, err
	}
	hash := sha256.New()
	fmt.Fprintf(hash, "%t %t %q\n", virtual, config.WithoutControllers, config.Namespaces)
	for _, d := range documents {
		fmt.Fprintf(hash, "%q %q\n", d.source, d.text)
	}
	key := hex.EncodeToString(hash.Sum(nil))
	c.mu.Lock()
	if c.entries == nil {
		c.entries = map[string]*world{}
	}
	w := c.entries[key]
	if w == nil {
		w = &world{}
		c.entries[key] = w
	}
	c.mu.Unlock()
	w.once.Do(func() { w.server, w.err = prepare(&c.compiler, config, documents) })
	return w, w.err
}

// prepare returns a server with the objects of config. Its error has all mistakes.
func prepare(compiler *crds.Compiler, config Config, documents []document) (*apiserver.Server, error) {
	var errs []error
	type placed struct {
		obj    *unstructured.Unstructured
		source string
	}
	var definitions, instances []placed
	for _, d := range documents {
		objects, err := d.decode()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, obj := range objects {
			if obj.GetKind() == "CustomResourceDefinition" {
				definitions = append(definitions, placed{obj, d.source})
			} else {
				instances = append(instances, placed{obj, d.source})
			}
		}
	}
	server, err := newServer(compiler, config)
	if err != nil {
		return nil, err
	}
	cluster, err := kube.Connect(&rest.Config{
		Host: "http://simulation.invalid", Transport: server.Transport(),
		UserAgent: "test", QPS: -1,
	})
	if err != nil {
		return nil, err
	}
	c, err := client.New(client.Config{Cluster: cluster, FieldOwner: "test", FieldValidation: "Strict"})
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Concat([]string{"default", "kube-system", "kube-public", "kube-node-lease"},
		config.Namespaces) {
		if _, err := client.EnsureNamespace(context.Background(), c, name, nil); err != nil {
			errs = append(errs, err)
		}
	}
	errs = append(errs, createSystemObjects(context.Background(), cluster))
	for _, o := range slices.Concat(definitions, instances) {
		if err := apply(context.Background(), c, o.obj); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", o.source, err))
		}
	}
	if !config.WithoutControllers {
		errs = append(errs, controllers.FillNamespaces(context.Background(), server))
	}
	return server, errors.Join(errs...)
}

// document is a YAML document and its place.
type document struct{ source, text string }

// read returns the documents of config. Its error names all files that cannot be read.
func read(config Config) ([]document, error) {
	var documents []document
	var errs []error
	add := func(source string, text []byte) {
		parts, err := split(source, text)
		documents = append(documents, parts...)
		if err != nil {
			errs = append(errs, err)
		}
	}
	for _, path := range config.Manifests {
		files, err := manifestFiles(path)
		if err != nil {
			errs = append(errs, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			add(file, text)
		}
	}
	add("Config.YAML", []byte(config.YAML))
	return documents, errors.Join(errs...)
}

// manifestFiles returns path if it is a file, or the manifests in the folder path and below it.
func manifestFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	var files []string
	err = filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(file)) &&
			entry.Name() != "kustomization.yaml" {
			files = append(files, file)
		}
		return err
	})
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("folder %s has no YAML or JSON file", path)
	}
	return files, err
}

// split returns the documents of a YAML or JSON text.
func split(source string, text []byte) ([]document, error) {
	var documents []document
	reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for n := 1; ; n++ {
		part, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		place := fmt.Sprintf("%s, document %d", source, n)
		if err != nil {
			return documents, fmt.Errorf("%s: %w", place, err)
		}
		documents = append(documents, document{place, string(part)})
	}
}

// decode returns the object of a document, or those of a List. An empty document has none.
func (d document) decode() ([]*unstructured.Unstructured, error) {
	encoded, err := kyaml.YAMLToJSONStrict([]byte(d.text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.source, err)
	}
	var fields map[string]any
	if err := json.Unmarshal(encoded, &fields); err != nil { // integers become int64
		return nil, fmt.Errorf("%s: %w", d.source, err)
	}
	if fields == nil {
		return nil, nil
	}
	if fields["apiVersion"] != "v1" || fields["kind"] != "List" {
		obj := &unstructured.Unstructured{Object: fields}
		return []*unstructured.Unstructured{obj}, checkObject(d.source, obj)
	}
	items, ok := fields["items"].([]any)
	if !ok && fields["items"] != nil {
		return nil, fmt.Errorf("%s: items of the List is not a list", d.source)
	}
	var objects []*unstructured.Unstructured
	for i, item := range items {
		source := fmt.Sprintf("%s, items[%d]", d.source, i)
		fields, ok := item.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%s: not a Kubernetes object", source)
		}
		obj := &unstructured.Unstructured{Object: fields}
		if err := checkObject(source, obj); err != nil {
			return nil, err
		}
		objects = append(objects, obj)
	}
	return objects, nil
}

// checkObject returns an error if obj has no identity.
func checkObject(source string, obj *unstructured.Unstructured) error {
	if _, isMap := obj.Object["metadata"].(map[string]any); !isMap && obj.Object["metadata"] != nil {
		return fmt.Errorf("%s: metadata is %v, want a map", source, obj.Object["metadata"])
	}
	for _, field := range [][]string{{"apiVersion"}, {"kind"}, {"metadata", "name"}, {"metadata", "namespace"}} {
		// YAML reads words such as no, off and 12 as other types, which would be like a missing field.
		value, _, _ := unstructured.NestedFieldNoCopy(obj.Object, field...)
		if _, isText := value.(string); value != nil && !isText {
			return fmt.Errorf("%s: %s is %v, want a text: quote it", source, strings.Join(field, "."), value)
		}
	}
	switch {
	case obj.GetAPIVersion() == "" || obj.GetKind() == "":
		return fmt.Errorf("%s: not a Kubernetes object: apiVersion and kind are required", source)
	case obj.GetName() == "":
		return fmt.Errorf("%s: %s without metadata.name", source, obj.GetKind())
	}
	return nil
}
