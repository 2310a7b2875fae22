package crds

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

// cleanupFinalizer keeps a deleted definition until its custom resources are deleted.
const cleanupFinalizer = apiextensionsv1.CustomResourceCleanupFinalizer

func definitionsResource() schema.GroupResource {
	return apiextensionsv1.Resource("customresourcedefinitions")
}

// Definitions returns the kind CustomResourceDefinition. Each accepted definition makes its server serve custom
// resources, before the response to the write is sent. convert returns their Converters; nil: all have none.
func (c *Compiler) Definitions(convert Conversions) *apiserver.Kind {
	kind := apiserver.Builtin[apiextensionsv1.CustomResourceDefinition](
		apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"), "customresourcedefinitions",
		apiextensionsv1.AddToScheme)
	kind.ShortNames, kind.Categories = []string{"crd", "crds"}, []string{"api-extensions"}
	kind.ClusterScoped, kind.Status, kind.Generation, kind.UnconditionalUpdate = true, true, true, false
	d := &definitions{c, convert}
	kind.Committed = d.committed
	kind.Rules = apiserver.Rules{
		Default: func(obj apiserver.Object) {
			apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(definition(obj))
		},
		Prepare:             func(obj, _ apiserver.Object) { addStoredVersion(definition(obj)) },
		Validate:            d.validate,
		ValidateSubresource: validateDefinitionStatus,
		Terminate:           terminate,
		FieldLabels:         []string{},
	}
	types, err := typesOf(definitionSchema())
	if err != nil {
		panic(fmt.Sprintf("the schema of definitions: %v", err)) // it is a constant
	}
	kind.Types = types
	return kind
}

// definition returns an object as a definition.
func definition(obj apiserver.Object) *apiextensionsv1.CustomResourceDefinition {
	return obj.(*apiextensionsv1.CustomResourceDefinition)
}

// addStoredVersion adds the storage version to the versions that objects may have in storage.
func addStoredVersion(crd *apiextensionsv1.CustomResourceDefinition) {
	for _, v := range crd.Spec.Versions {
		if v.Storage {
			if !slices.Contains(crd.Status.StoredVersions, v.Name) {
				crd.Status.StoredVersions = append(crd.Status.StoredVersions, v.Name)
			}
			return
		}
	}
}

// terminate prepares a definition for the deletion of its custom resources.
func terminate(obj apiserver.Object) {
	crd := definition(obj)
	if !slices.Contains(crd.Finalizers, cleanupFinalizer) {
		crd.Finalizers = append(crd.Finalizers, cleanupFinalizer)
	}
	setCondition(crd, apiextensionsv1.Terminating, true, "InstanceDeletionPending",
		"CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon")
}

// setCondition sets a condition. Its time changes with its status.
func setCondition(
	crd *apiextensionsv1.CustomResourceDefinition, kind apiextensionsv1.CustomResourceDefinitionConditionType,
	status bool, reason, message string,
) {
	condition := apiextensionsv1.CustomResourceDefinitionCondition{
		Type: kind, Status: apiextensionsv1.ConditionFalse, LastTransitionTime: metav1.Now().Rfc3339Copy(),
		Reason: reason, Message: message,
	}
	if status {
		condition.Status = apiextensionsv1.ConditionTrue
	}
	i := slices.IndexFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == kind
	})
	if i < 0 {
		crd.Status.Conditions = append(crd.Status.Conditions, condition)
		return
	}
	if old := crd.Status.Conditions[i]; old.Status == condition.Status {
		condition.LastTransitionTime = old.LastTransitionTime
	}
	crd.Status.Conditions[i] = condition
}

func hasCondition(
	crd *apiextensionsv1.CustomResourceDefinition, kind apiextensionsv1.CustomResourceDefinitionConditionType,
) bool {
	return slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == kind && c.Status == apiextensionsv1.ConditionTrue
	})
}

// definitions does the work of the real server's controllers of definitions, after each write of a definition.
type definitions struct {
	compiler *Compiler
	convert  Conversions
}

// Conversions returns the Converter for the custom resources of a definition in a server; nil as in Kinds.
type Conversions func(s *apiserver.Server, crd *apiextensionsv1.CustomResourceDefinition) Converter

// Rebind makes a fork of a server use the Converters of the fork. Its definitions are those of Definitions(convert).
func (c *Compiler) Rebind(fork *apiserver.Server, convert Conversions) {
	d := &definitions{c, convert}
	for _, obj := range fork.Objects(definitionsResource()) {
		if crd := definition(obj); hasCondition(crd, apiextensionsv1.Established) && convert(fork, crd) != nil {
			d.serve(fork, resourceOf(crd), crd)
		}
	}
}

func (d *definitions) committed(s *apiserver.Server, change apiserver.Change) {
	if change.Object == nil {
		old := definition(change.Old)
		d.serve(s, resourceOf(old), nil)
		for _, other := range others(s, old) { // whose names may be free now
			d.acceptNames(s, other)
		}
		return
	}
	crd := definition(change.Object)
	established := hasCondition(crd, apiextensionsv1.Established)
	if established && (change.Old == nil || definitionChanged(crd, definition(change.Old))) {
		d.serve(s, resourceOf(crd), crd)
	}
	switch {
	case crd.DeletionTimestamp != nil && slices.Contains(crd.Finalizers, cleanupFinalizer):
		d.cleanUp(s, crd)
	case d.acceptNames(s, crd): // and the write is the next change
	case hasCondition(crd, apiextensionsv1.NamesAccepted) && !established:
		crd = crd.DeepCopy()
		setCondition(crd, apiextensionsv1.Established, true, "InitialNamesAccepted",
			"the initial names have been accepted")
		updateStatus(s, crd)
	}
}

// definitionChanged reports whether custom resources are served differently.
func definitionChanged(crd, old *apiextensionsv1.CustomResourceDefinition) bool {
	return !hasCondition(old, apiextensionsv1.Established) || !equality.Semantic.DeepEqual(crd.Spec, old.Spec) ||
		!equality.Semantic.DeepEqual(crd.Status.AcceptedNames, old.Status.AcceptedNames)
}

func resourceOf(crd *apiextensionsv1.CustomResourceDefinition) schema.GroupResource {
	return schema.GroupResource{Group: crd.Spec.Group, Resource: crd.Spec.Names.Plural}
}

// serve makes the server serve the custom resources of a definition; nil: not any more.
func (d *definitions) serve(
	s *apiserver.Server, resource schema.GroupResource, crd *apiextensionsv1.CustomResourceDefinition,
) {
	if isBuiltin(s, resource) {
		return
	}
	var kinds []*apiserver.Kind
	if crd != nil {
		crd = crd.DeepCopy()
		crd.Spec.Names = crd.Status.AcceptedNames
		var convert Converter
		if d.convert != nil {
			convert = d.convert(s, crd)
		}
		var err error
		if kinds, err = d.compiler.Kinds(crd, convert); err != nil {
			panic(fmt.Sprintf("definition %s is valid, but: %v", crd.Name, err))
		}
	}
	for _, kind := range kinds {
		storage := kind
		if kind.Storage != nil {
			storage = kind.Storage
		}
		storage.Committed = d.instanceCommitted
		kind.CheckCreate = func(s *apiserver.Server) error {
			if crd := find(s, resource); crd != nil && hasCondition(crd, apiextensionsv1.Terminating) {
				return errors.New("create not allowed while custom resource definition is terminating")
			}
			return nil
		}
	}
	var err error
	if crd != nil && len(kinds) == 0 { // its objects stay until a version is served again
		err = s.Withdraw(resource)
	} else {
		err = s.Serve(resource, kinds...)
	}
	if err != nil {
		panic(fmt.Sprintf("definition of %s is valid, but: %v", resource, err))
	}
}

// isBuiltin reports whether a resource is a built-in one, which takes precedence over custom resources of the same
// name.
func isBuiltin(s *apiserver.Server, resource schema.GroupResource) bool {
	return slices.ContainsFunc(s.Kinds(), func(k *apiserver.Kind) bool {
		return k.NewObject != nil && k.GroupVersion().WithResource(k.Resource).GroupResource() == resource
	})
}

// find returns the definition of a resource, or nil.
func find(s *apiserver.Server, resource schema.GroupResource) *apiextensionsv1.CustomResourceDefinition {
	for _, obj := range s.Objects(definitionsResource()) {
		if obj.GetName() == resource.String() {
			return definition(obj)
		}
	}
	return nil
}

// cleanUp deletes the custom resources of a definition that is being deleted, and then the definition. Custom resources
// with finalizers stay; instanceCommitted continues when they are gone.
func (d *definitions) cleanUp(s *apiserver.Server, crd *apiextensionsv1.CustomResourceDefinition) {
	crd = crd.DeepCopy()
	if i := slices.IndexFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Terminating && c.Reason == "InstanceDeletionPending"
	}); i >= 0 {
		setCondition(crd, apiextensionsv1.Terminating, true, "InstanceDeletionInProgress",
			"CustomResource deletion is in progress")
		updateStatus(s, crd) // and this function is called again
		return
	}
	if hasCondition(crd, apiextensionsv1.Established) {
		if !isBuiltin(s, resourceOf(crd)) && !d.deleteInstances(s, crd) {
			return
		}
		setCondition(crd, apiextensionsv1.Terminating, false, "InstanceDeletionCompleted", "removed all instances")
	} else {
		setCondition(crd, apiextensionsv1.Terminating, false, "NeverEstablished", "resource was never established")
	}
	crd.Finalizers = slices.DeleteFunc(crd.Finalizers, func(name string) bool { return name == cleanupFinalizer })
	updateStatus(s, crd)
}

// deleteInstances deletes the custom resources of a definition, and reports whether all are gone. Those with finalizers
// stay.
func (d *definitions) deleteInstances(s *apiserver.Server, crd *apiextensionsv1.CustomResourceDefinition) (gone bool) {
	resource := resourceOf(crd)
	isServed := func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Served }
	if len(s.Objects(resource)) > 0 && !slices.ContainsFunc(crd.Spec.Versions, isServed) {
		withdrawn := crd
		crd = crd.DeepCopy()
		for i := range crd.Spec.Versions {
			crd.Spec.Versions[i].Served = crd.Spec.Versions[i].Storage // during the requests below
		}
		d.serve(s, resource, crd)
		defer d.serve(s, resource, withdrawn)
	}
	// A deletion in the storage version needs no conversion, but that version may not be served.
	served := slices.IndexFunc(crd.Spec.Versions, isServed)
	for i, v := range crd.Spec.Versions {
		if v.Served && v.Storage {
			served = i
		}
	}
	for _, obj := range s.Objects(resource) {
		if obj.GetDeletionTimestamp() != nil {
			continue
		}
		path := "/apis/" + crd.Spec.Group + "/" + crd.Spec.Versions[served].Name
		if obj.GetNamespace() != "" {
			path += "/namespaces/" + obj.GetNamespace()
		}
		send(s, http.MethodDelete, path+"/"+resource.Resource+"/"+obj.GetName(), nil)
	}
	return len(s.Objects(resource)) == 0
}

// instanceCommitted continues the deletion of a definition when a custom resource is gone.
func (d *definitions) instanceCommitted(s *apiserver.Server, change apiserver.Change) {
	resource := schema.GroupResource{Group: change.Kind.Group, Resource: change.Kind.Resource}
	if change.Object != nil || len(s.Objects(resource)) > 0 {
		return
	}
	if crd := find(s, resource); crd != nil && crd.DeletionTimestamp != nil &&
		slices.Contains(crd.Finalizers, cleanupFinalizer) {
		d.cleanUp(s, crd)
	}
}

// updateStatus writes the status of a definition. A conflict is not an error: the other write is a change of its own.
func updateStatus(s *apiserver.Server, crd *apiextensionsv1.CustomResourceDefinition) {
	send(s, http.MethodPut, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"+crd.Name+"/status", crd)
}

// send makes a request as the real server's controllers do. Its response is not needed: they would try again after an
// error, which here happens after the next write of the object.
func send(s *apiserver.Server, method, path string, body any) {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			panic(fmt.Sprintf("encode a definition: %v", err)) // it was decoded from JSON
		}
	}
	//nolint:noctx // it never waits
	req, err := http.NewRequest(method, "http://apiserver.invalid"+path, bytes.NewReader(text))
	if err != nil {
		panic(fmt.Sprintf("request %s: %v", path, err)) // names are valid in paths
	}
	req.Header.Set("User-Agent", "kube-apiserver")
	req.Header.Set("Content-Type", "application/json")
	if res, err := s.Transport().RoundTrip(req); err == nil {
		_ = res.Body.Close()
	}
}
