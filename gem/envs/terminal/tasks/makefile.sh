python3 - <<'END'
open("Makefile", "w").write('''SOURCES := $(sort $(wildcard src/*.in))
PARTS := $(SOURCES:src/%.in=build/%.txt)

build/all.txt: $(PARTS) Makefile
	cat $(PARTS) > $@

build/%.txt: src/%.in
	@mkdir -p build
	{command} < $< > $@
''')
END
