package conformance

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// operation is a request, with placeholders for values that the servers choose:
//
//	$ns         the namespace of the sequence
//	$rv, $old   the latest version of the object that the server has sent, and the one before; otherwise $first
//	$first      the version when the sequence began
//	$latest     the highest version of an object that the server has sent in the sequence
//	$middle     a version in the middle of the sequence
//	$listed     the version of the latest list of the resource
//	$uid        the uid of the object
//	$continue   the token of the latest list of the resource
//	$token      the latest token of a service account
type operation struct {
	kind                         *kind
	method, apiVersion, resource string
	namespace                    string // $ns, or another one; empty: all
	name, subresource            string
	query, body                  string
	header                       map[string]string
	watch                        bool
}

func (o operation) String() string {
	text := o.method + " " + o.path()
	if o.watch {
		text = "WATCH " + o.path()
	}
	for _, name := range slices.Sorted(maps.Keys(o.header)) {
		if o.header[name] != "" {
			text += " " + name + ": " + o.header[name]
		}
	}
	return text + " " + o.body
}

func (o operation) path() string {
	var b strings.Builder
	if strings.Contains(o.apiVersion, "/") {
		b.WriteString("/apis/" + o.apiVersion)
	} else {
		b.WriteString("/api/" + o.apiVersion)
	}
	if o.namespace != "" {
		b.WriteString("/namespaces/" + o.namespace)
	}
	if o.resource != "" { // otherwise discovery
		b.WriteString("/" + o.resource)
	}
	if o.name != "" {
		b.WriteString("/" + o.name)
	}
	if o.subresource != "" {
		b.WriteString("/" + o.subresource)
	}
	if o.query != "" {
		b.WriteString("?" + o.query)
	}
	return b.String()
}

// key identifies the object that the operation addresses.
func (o operation) key() string { return o.resource + "/" + o.namespace + "/" + o.name }

// verb is what the operation counts as.
func (o operation) verb() string {
	if o.kind.alone != nil && o.resource != o.kind.resource {
		o.kind, o.resource = &kind{}, o.kind.resource
		return o.verb() + customResource
	}
	switch {
	case o.watch:
		return "watch"
	case o.method == http.MethodGet && o.name == "":
		return "list"
	case o.method == http.MethodDelete && o.name == "":
		return "deletecollection"
	case strings.HasPrefix(o.header["Content-Type"], "application/apply-patch"):
		return "apply"
	case o.method == http.MethodPost && o.subresource == "eviction":
		return "evict"
	case o.method == http.MethodPost && o.subresource == "binding":
		return "bind"
	}
	return map[string]string{
		http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete", http.MethodGet: "get", http.MethodOptions: "options",
	}[o.method]
}

func list(ops []operation) string {
	var b strings.Builder
	for i, o := range ops {
		fmt.Fprintf(&b, "%4d  %s\n", i, o)
	}
	return b.String()
}
