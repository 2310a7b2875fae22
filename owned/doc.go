// Package owned keeps the children of an object as they should be: the Deployment, the Service
// and the ConfigMap that a custom resource stands for, wherever they live. It takes the list of
// all children that are desired, applies them in order, deletes those that are no longer among
// them, and says of each what has become of it.
//
//	children, err := owned.New(owned.Config{Client: c, Name: "webapp", Kinds: kinds})
//	...
//	report, err := children.Apply(ctx, app, slices.Concat(owned.Of(config, service), owned.Wave(1, deployment))...)
//
// # Whose an object is
//
// Every child carries two labels, LabelSet and LabelOwnerUID, by which it is found again, and
// two annotations, AnnotationOwner and AnnotationChild: the key of its owner, which leads back
// (OwnerOf), and its own, by which copies are told from it. Where Kubernetes allows an owner
// reference, the owner is the child's controller too. Nothing is known by its name alone: an
// object that is in a child's place and belongs to somebody else is left as it is, and reported.
// A third annotation, AnnotationWave, notes the wave of those that are not of wave 0: children are
// deleted in the reverse order.
//
// # What it costs
//
// With informers in the client's Config that cover the kinds, a run in which nothing has to
// change makes no request. Without them it makes one list for each of Config.Kinds, of metadata,
// and what client.Apply needs for each child. Informers of the label LabelSet cover the children.
// To create a child is one request, and one GET more for a kind that is not one of Kubernetes' own
// (client.IfAbsent). Package watched, below this one, makes such informers, with the client and the
// sources of a controller.
//
// # Permissions
//
// For each of Config.Kinds: get, list, create, patch and delete, in the namespaces of children;
// get for the owner's kind; and where the API server has the admission plugin
// OwnerReferencesPermissionEnforcement, update of the owner's finalizers subresource.
package owned
