package exec

import (
	_ "embed"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// introspectionQuery is graphql-js' getIntrospectionQuery with every option that is not experimental.
//
//go:embed testdata/introspection.graphql
var introspectionQuery string

func TestIntrospectionQuery(t *testing.T) {
	e := (&fixture{}).engine(t)
	type typ struct {
		Kind, Name                  string
		Description, SpecifiedByURL *string
		IsOneOf                     *bool
		OfType                      *struct{ Kind, Name string }
		Fields                      []struct {
			Name              string
			IsDeprecated      bool
			DeprecationReason *string
			Args              []struct {
				Name         string
				DefaultValue *string
			}
		}
		InputFields []struct {
			Name         string
			DefaultValue *string
		}
		EnumValues []struct {
			Name              string
			IsDeprecated      bool
			DeprecationReason *string
		}
		PossibleTypes, Interfaces []struct{ Name string }
	}
	var got struct {
		Errors []any
		Data   struct {
			Schema struct {
				QueryType, MutationType, SubscriptionType struct{ Name string }
				Types                                     []typ
				Directives                                []struct{ Name string }
			} `json:"__schema"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(run(t, e, Request{Query: introspectionQuery})), &got))
	require.Empty(t, got.Errors)
	s := got.Data.Schema
	require.Equal(t, "Query", s.QueryType.Name)
	require.Equal(t, "Subscription", s.SubscriptionType.Name)
	types := map[string]typ{}
	for _, typ := range s.Types {
		types[typ.Name] = typ
	}
	require.Len(t, types, len(e.schema.Types))
	require.Len(t, s.Directives, 5)
	require.Equal(t, "https://example.com/time", *types["Time"].SpecifiedByURL)
	require.Equal(t, "An instant.", *types["Time"].Description)
	require.Nil(t, types["User"].Description)
	require.True(t, *types["Range"].IsOneOf)
	require.False(t, *types["Filter"].IsOneOf)
	require.Nil(t, types["User"].IsOneOf)
	require.Equal(t, "ENUM", types["Visibility"].Kind)
	require.Equal(t, "gone", *types["Visibility"].EnumValues[2].DeprecationReason)
	require.Len(t, types["Node"].PossibleTypes, 2)
	require.Len(t, types["Found"].PossibleTypes, 2)
	require.Equal(t, "Node", types["Post"].Interfaces[0].Name)
	require.Equal(t, `"any"`, *types["Filter"].InputFields[0].DefaultValue)
	query := types["Query"]
	require.Len(t, query.Fields, len(e.schema.Query.Fields)-2, "__schema and __type are not listed")
	last := query.Fields[len(query.Fields)-1]
	require.True(t, last.IsDeprecated)
	require.Equal(t, "No longer supported", *last.DeprecationReason)
}

func TestIntrospectionOfOneType(t *testing.T) {
	e := (&fixture{}).engine(t, func(c *Config) { c.Limits.Depth = 2 }) // no limit to introspection
	require.JSONEq(t, `{"data": {"none": null, "__type": {"kind": "INTERFACE", "ofType": null, "enumValues": null, "fields": [
		{"name": "id", "type": {"kind": "NON_NULL", "name": null, "ofType": {"name": "ID", "kind": "SCALAR", "fields": null}}}]},
		"v": {"enumValues": [{"name": "PUBLIC"}, {"name": "PRIVATE"}]}}}`,
		run(t, e, Request{Query: `{ none: __type(name: "Nothing") { name } __type(name: "Node") { kind ofType { name } enumValues { name }
			fields { name type { kind name ofType { name kind fields { name } } } } } v: __type(name: "Visibility") { enumValues { name } } }`}))
}

func TestIntrospectionCanBeDisabled(t *testing.T) {
	e := (&fixture{}).engine(t, func(c *Config) { c.Introspection = false })
	for _, query := range []string{`{ __schema { description } }`, `{ ...F } fragment F on Query { __type(name: "Post") { name } }`} {
		_, errs := e.Prepare(t.Context(), Request{Query: query})
		require.NotEmpty(t, errs)
		require.Contains(t, errs[0].Message, "Introspection is disabled")
		require.Equal(t, CodeValidationFailed, errs[0].Extensions["code"])
	}
	require.Equal(t, `{"data":{"__typename":"Query"}}`, run(t, e, Request{Query: `{ __typename }`}))
}
