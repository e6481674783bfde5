//! Turns the shipped tool models into their compiled form, so that no program start reads their YAML.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "load")]
    models::write()?;
    Ok(())
}

#[cfg(feature = "load")]
#[allow(dead_code, reason = "the build needs only the loader")]
#[path = "src/load/tools/mod.rs"]
mod tools;

#[cfg(feature = "load")]
mod models {
    use substrate_compiled::codec::Encoder;

    use crate::tools;

    pub fn write() -> Result<(), Box<dyn std::error::Error>> {
        println!("cargo::rerun-if-changed=src/load/tools");
        println!("cargo::rerun-if-changed=../../policies/tools");
        let models = tools::load(tools::shipped().iter().copied())?;
        let mut bytes = Encoder::new();
        bytes.list(&models, |to, tool| {
            let names: Vec<&String> = tool.all_names().collect();
            to.list(&names, |to, name| to.text(name));
            to.bytes(&substrate_command::codec::encode(tool));
        });
        let directory = std::env::var_os("OUT_DIR").ok_or("cargo gives no OUT_DIR")?;
        std::fs::write(
            std::path::Path::new(&directory).join("models.bin"),
            bytes.finish(),
        )?;
        Ok(())
    }
}
