package cli

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	yaml "go.yaml.in/yaml/v3"
)

// What is written as YAML is what is written as JSON.
func TestYAML(t *testing.T) {
	for _, text := range []string{
		`{"a":1,"b":"x y","nodes":[{"id":"a","up":true,"list":[1,2,[3,"four"],[],{}]},{"id":"b","none":null}],"empty":[],"map":{}}`,
		`{"texts":["yes","NO","null","~","","1","1.5","- x","a: b","a #b","#","key\nline","\"q\"","<&>","é","\u2028","\u0001","0x1f","2026-01-01","host/1","trailing ","%a","@b","'","=","a:","*x"]}`,
		`[]`, `"x"`, `{"yes":{"deep":{"deeper":[[{"a":"b"}]]}}}`, `{"big":18446744073709551615,"f":-1.5e9}`,
	} {
		var out bytes.Buffer
		if err := writeYAML(&out, json.RawMessage(text)); err != nil {
			t.Fatal(err)
		}
		var read, want any
		if err := yaml.Unmarshal(out.Bytes(), &read); err != nil {
			t.Fatalf("YAML written from %s: got error %v, want it to parse:\n%s", text, err, out.String())
		}
		again, err := json.Marshal(read)
		if err != nil {
			t.Fatal(err)
		}
		var got any
		if json.Unmarshal(again, &got) != nil || json.Unmarshal([]byte(text), &want) != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("YAML written: got\n%s\nwant the same data as the JSON %s", out.String(), text)
		}
	}
}
