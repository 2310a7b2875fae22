// Package owned keeps the children of an object in their desired state: for example the Deployment, the Service and the
// ConfigMap of a custom resource, in any namespace. Its input is the list of all desired children. It applies them in
// order, deletes the children that are not desired anymore, and reports the state of each.
//
//	children, err := owned.New(owned.Config{Client: c, Name: "webapp", Kinds: kinds})
//	...
//	report, err := children.Apply(ctx, app, slices.Concat(owned.Of(config, service), owned.Wave(1, deployment))...)
//
// # Parts of an operator
//
// Package owned/watched creates a Set together with the informers, the client and the sources that it needs. A handler
// calls Set.Apply and sets conditions from Report.States with package status; middleware.Status writes them at the end
// of the run. If children have no owner reference, or things outside of the cluster must be deleted, a step of package
// finalizer calls Set.Delete. examples/webapp is such an operator.
//
// # Child ownership
//
// A set identifies its children by their metadata:
//
//   - label evenkeel.dev/set (LabelSet): the name of the set
//   - label evenkeel.dev/owner-uid: the uid of the owner
//   - annotations evenkeel.dev/owner and evenkeel.dev/owner-kind: the key and kind of the owner, which OwnerKeys reads
//   - annotation evenkeel.dev/child: the key of the child; a copy of a child has another name, so it is not a child
//   - annotation evenkeel.dev/wave: the wave, unless it is 0; children are deleted in reverse order
//   - annotation evenkeel.dev/configuration: a hash of the applied fields
//   - annotation evenkeel.dev/taken-over: see Config.FormerManagers
//
// The owner has the annotation evenkeel.dev/finished: see Child.Once.
//
// Where Kubernetes allows an owner reference, the owner is also the controller of the child. A name is never enough to
// identify a child: a Set does not change an object with the name of a child that belongs to another owner. It reports
// the object with a ForeignError.
//
// # Requests
//
// If the client has informers that cover the kinds (those of package watched do, and have only objects with LabelSet),
// a run without changes makes no request. Without informers, it makes one list of metadata for each of Config.Kinds,
// and the requests of client.Apply for each child. To create a child takes one request, and one more GET for kinds that
// are not built into Kubernetes (client.IfAbsent).
//
// # Permissions
//
// A Set needs get, list, create, patch and delete for each of Config.Kinds in the namespaces of children, and get for
// the kind of the owner. If the API server has the admission plugin OwnerReferencesPermissionEnforcement, it also needs
// update for the finalizers subresource of the owner.
package owned
